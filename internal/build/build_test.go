package build

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestDescribe(t *testing.T) {
	read := func(module string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: module}, Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "abc"}
	for name, c := range map[string]struct {
		given string
		read  *debug.BuildInfo
		want  string
	}{
		"by the linker":    {"1.2.3", read("v1.0.0", revision), "1.2.3, commit abc, go1.26"},
		"by the module":    {"", read("v1.0.0"), "v1.0.0, go1.26"},
		"of a folder":      {"", read("(devel)", revision), "devel, commit abc, go1.26"},
		"by the linker, -": {"1.2.3", read("(devel)"), "1.2.3, go1.26"},
		"changed": {
			"", read("v1.0.0+dirty", revision, debug.BuildSetting{Key: "vcs.modified", Value: "true"}),
			"v1.0.0+dirty, commit abc with changes, go1.26",
		},
		"nothing known": {"", nil, "devel, "},
	} {
		if got := describe(c.given, c.read).String(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestMark(t *testing.T) {
	got := string(Info{Version: `1.2.3-"x"`}.Mark([]byte("openapi: 3.0.3\ninfo:\n  title: Annals\n  version: 1.0.0\n")))
	if !strings.Contains(got, "\ninfo:\n  x-build: \"1.2.3-\\\"x\\\"\"\n  title: Annals\n  version: 1.0.0\n") {
		t.Errorf("got %s", got)
	}
}
