package deletion_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
)

var (
	project = uuid.MustParse("6f1f1b1e-0000-4000-8000-000000000001")
	a       = uuid.MustParse("6f1f1b1e-0000-4000-8000-00000000000a")
	b       = uuid.MustParse("6f1f1b1e-0000-4000-8000-00000000000b")
	send    = uuid.MustParse("6f1f1b1e-0000-4000-8000-00000000000c")
	at      = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

	accepted  = &deletion.Accepted{ProjectID: project, Targets: make([]deletion.Target, 2)}
	fannedOut = &deletion.FannedOut{ProjectID: project, Deleted: []uuid.UUID{a}, Kept: []uuid.UUID{b}}
	cleaned   = &deletion.Cleaned{ProjectID: project, CleanedAt: at}
)

// part retains the facts of a data point up to a stream revision.
func part(dataPoint uuid.UUID, to int64, complete, batch bool, blobs ...string) *deletion.FactsKept {
	return &deletion.FactsKept{
		ProjectID: project, DataPoint: dataPoint, To: to, Complete: complete, Blobs: blobs,
		Facts: []deletion.RetainedFact{{IngestionID: send, Batch: batch}},
	}
}

func given(events ...event.Event) *deletion.State {
	s := &deletion.State{}
	for _, e := range events {
		s.Evolve(e)
	}
	return s
}

func TestState_Evolve(t *testing.T) {
	for name, tt := range map[string]struct {
		given     []event.Event
		pending   bool
		retaining []uuid.UUID
		others    []uuid.UUID
		// of a
		next     int64
		complete bool
	}{
		"no events":                    {},
		"committed":                    {given: []event.Event{accepted}, pending: true},
		"fanned out":                   {given: []event.Event{accepted, fannedOut}, others: []uuid.UUID{a}},
		"one id, facts of a part":      {given: []event.Event{part(a, 3, false, false, "x")}, retaining: []uuid.UUID{a}, next: 3},
		"all facts, in two parts":      {given: []event.Event{part(a, 3, false, true, "x"), part(a, 5, true, false, "y")}, retaining: []uuid.UUID{a}, next: 5, complete: true},
		"facts after the fan-out":      {given: []event.Event{accepted, fannedOut, part(a, 1, true, false)}, retaining: []uuid.UUID{a}, next: 1, complete: true},
		"facts of another data point":  {given: []event.Event{accepted, fannedOut, part(b, 1, true, false)}, retaining: []uuid.UUID{b}, others: []uuid.UUID{a}},
		"a part that is stored before": {given: []event.Event{part(a, 5, true, false), part(a, 3, false, false)}, retaining: []uuid.UUID{a}, next: 5, complete: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := given(tt.given...)
			if s.Events != int64(len(tt.given)) || s.PendingFanOut() != tt.pending {
				t.Errorf("%d events, pending %v", s.Events, s.PendingFanOut())
			}
			if diff := cmp.Diff(tt.retaining, s.Retaining); diff != "" {
				t.Errorf("retaining (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.others, s.Others(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("others (-want +got):\n%s", diff)
			}
			r := s.Retained(a)
			if r == nil {
				r = &deletion.Retained{}
			}
			if r.Next != tt.next || r.Complete != tt.complete {
				t.Errorf("retained %+v", r)
			}
		})
	}
}

func TestState_Decide(t *testing.T) {
	fanOut := func(s *deletion.State) []event.Event { return s.CompleteFanOut([]uuid.UUID{a}, []uuid.UUID{b}) }
	clean := func(s *deletion.State) []event.Event { return s.Clean(at) }
	for name, tt := range map[string]struct {
		given []event.Event
		when  func(*deletion.State) []event.Event
		then  []event.Event
	}{
		"fan-out of a committed deletion": {[]event.Event{accepted}, fanOut, []event.Event{fannedOut}},
		"fan-out that another run ended":  {[]event.Event{accepted, fannedOut}, fanOut, nil},
		"fan-out of one id":               {[]event.Event{part(a, 1, true, false)}, fanOut, nil},
		"clean one id":                    {[]event.Event{part(a, 1, true, false)}, clean, []event.Event{cleaned}},
		"clean after the fan-out":         {[]event.Event{accepted, fannedOut}, clean, []event.Event{cleaned}},
		"clean before the fan-out":        {[]event.Event{accepted}, clean, nil},
		"clean twice":                     {[]event.Event{accepted, fannedOut, cleaned}, clean, nil},
		"clean an unknown deletion":       {nil, clean, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.then, tt.when(given(tt.given...))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFactsKept_BatchSends(t *testing.T) {
	for name, tt := range map[string]struct {
		facts *deletion.FactsKept
		want  []uuid.UUID
	}{
		"a single send": {part(a, 3, true, false), nil},
		"a batch":       {part(a, 3, true, true), []uuid.UUID{send}},
	} {
		if diff := cmp.Diff(tt.want, tt.facts.BatchSends()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
