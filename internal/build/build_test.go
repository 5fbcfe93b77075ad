package build

import (
	"os"
	"regexp"
	"runtime/debug"
	"testing"
)

func TestDescribe(t *testing.T) {
	read := func(settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: "v0.0.1"}, Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "abc"}
	for name, c := range map[string]struct {
		given string
		read  *debug.BuildInfo
		want  string
	}{
		"by the linker":      {"def", read(revision), Version + ", commit def, go1.26"},
		"by the repository":  {"", read(revision), Version + ", commit abc, go1.26"},
		"without repository": {"def", read(), Version + ", commit def, go1.26"},
		"of a module":        {"", read(), Version + ", go1.26"},
		"changed": {
			"", read(revision, debug.BuildSetting{Key: "vcs.modified", Value: "true"}),
			Version + ", commit abc with changes, go1.26",
		},
		"nothing known": {"", nil, Version + ", "},
	} {
		if got := describe(c.given, c.read).String(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// What cannot read the constant repeats it.
func TestVersion_IsTheSameEverywhere(t *testing.T) {
	for file, expression := range map[string]string{
		"CHANGELOG.md":         `(?m)^## \[?([0-9][^\]\s]*)`,
		"readapi/openapi.yaml": `(?m)^info:\n(?:  .*\n)*?  x-build: (.+)$`,
		"deploy/Dockerfile":    `(?m)^LABEL org\.opencontainers\.image\.version=(.+)$`,
	} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(expression).FindSubmatch(text)
		if found == nil || string(found[1]) != Version {
			t.Errorf("%s: the first version is %s, want %s", file, found, Version)
		}
	}
}
