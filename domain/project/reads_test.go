package project_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/project"
)

func TestState_SetReads(t *testing.T) {
	set := func(mode project.ReadsMode, days int) *project.ReadsSet {
		return &project.ReadsSet{ProjectID: id, Mode: mode, Days: days, SetAt: at}
	}
	kept := set(project.ReadsKept, 365)
	for name, c := range map[string]struct {
		given []event.Event
		when  project.Reads
		then  []event.Event
		bad   bool
	}{
		"on":                       {nil, project.Reads{Mode: project.ReadsKept, Days: 365}, []event.Event{kept}, false},
		"what a new project has":   {nil, project.Reads{Mode: project.ReadsOff, Days: 365}, nil, false},
		"again":                    {[]event.Event{kept}, project.Reads{Mode: project.ReadsKept, Days: 365}, nil, false},
		"the least time":           {[]event.Event{kept}, project.Reads{Mode: project.ReadsKept, Days: 30}, []event.Event{set(project.ReadsKept, 30)}, false},
		"the most time":            {nil, project.Reads{Mode: project.ReadsOff, Days: 3650}, []event.Event{set(project.ReadsOff, 3650)}, false},
		"off":                      {[]event.Event{kept}, project.Reads{Mode: project.ReadsOff, Days: 365}, []event.Event{set(project.ReadsOff, 365)}, false},
		"too short":                {nil, project.Reads{Mode: project.ReadsKept, Days: 29}, nil, true},
		"too long":                 {nil, project.Reads{Mode: project.ReadsKept, Days: 3651}, nil, true},
		"a mode that is not known": {nil, project.Reads{Mode: "proven", Days: 365}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := given(c.given...).SetReads(id, c.when, at)
			f, _ := errors.AsType[*fault.Error](err)
			if (f != nil && f.Code == fault.CodeInvalidRequest) != c.bad || (err != nil) != c.bad {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(c.then, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
