package server

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRoles(t *testing.T) {
	for text, want := range map[string]string{
		"": AllRoles().String(), "read": "read", " read , write,read": "read,write", "write,read,projector,pipeline,console": AllRoles().String(),
	} {
		roles, err := ParseRoles(text)
		if err != nil || roles.String() != want {
			t.Errorf("%q: %s, %v, want %s", text, roles, err, want)
		}
	}
	if _, err := ParseRoles("read,writer"); err == nil {
		t.Error("an unknown role is taken")
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
		"console alone":               {"console", log, db, index, ""},
		"embedded index, console":     {"console", log, db, Embedded, "INDEX"},
		"embedded index, and read":    {"read,projector,pipeline,console", log, db, Embedded, ""},
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
