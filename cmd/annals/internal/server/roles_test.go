package server

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRoles_Parts(t *testing.T) {
	all := parts{
		writes: true, reads: true, firstStart: true, backpressure: true, index: true, projections: true, pipeline: true, console: true,
	}
	for text, want := range map[string]parts{
		"write": {writes: true, firstStart: true, backpressure: true}, "read": {reads: true, index: true},
		"projector": {projections: true, index: true}, "pipeline": {pipeline: true, backpressure: true, index: true},
		"console": {console: true}, " read , write,read": {writes: true, reads: true, firstStart: true, backpressure: true, index: true},
		"write,read,projector,pipeline,console": all,
	} {
		roles, err := ParseRoles(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := roles.parts(); got != want {
			t.Errorf("%q has %+v, want %+v", text, got, want)
		}
	}
	if got := Roles(nil).parts(); got != all {
		t.Errorf("without roles a process has %+v", got)
	}
}

func TestRoles_CheckEmbedded(t *testing.T) {
	const log, db, index = "esdb://log:2113", "postgres://db/annals", "https://search:9200"
	for name, c := range map[string]struct {
		roles, log, db, index string
		setting               string
	}{
		"all, embedded":               {AllRoles().String(), Embedded, Embedded, Embedded, ""},
		"split, nothing embedded":     {"read", log, db, index, ""},
		"embedded log":                {"write,read,projector,pipeline", Embedded, db, index, "EVENTSTORE"},
		"embedded database":           {"read", log, Embedded, index, "POSTGRES"},
		"embedded index, read apart":  {"write,read", log, db, Embedded, "INDEX"},
		"embedded index, writes":      {"write", log, db, Embedded, ""},
		"embedded index, all but one": {"read,projector,pipeline", log, db, Embedded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			roles, err := ParseRoles(c.roles)
			if err != nil {
				t.Fatal(err)
			}
			setting, err := roles.CheckEmbedded(c.log, c.db, c.index)
			if diff := cmp.Diff(c.setting, setting); diff != "" || (err != nil) != (c.setting != "") {
				t.Errorf("%v, %s", err, diff)
			}
			if err != nil && (strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "ANNALS_ROLES")) {
				t.Errorf("the line is %q", err)
			}
		})
	}
}
