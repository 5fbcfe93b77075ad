package project_test

import (
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/project"
)

func TestSlug(t *testing.T) {
	for name, want := range map[string]string{
		"Support desk":        "support-desk",
		"  R&D -- 2026!  ":    "r-d-2026",
		"Überraschung":        "berraschung",
		"日本語":                 "project",
		"a":                   "a",
		"Already-Dashed_Name": "already-dashed-name",
	} {
		if got := project.Slug(name); got != want {
			t.Errorf("Slug(%q) = %q, want %q", name, got, want)
		}
	}
	taken := map[string]bool{"support-desk": true, "support-desk-2": true}
	if got := project.FreeSlug("Support Desk", func(s string) bool { return taken[s] }); got != "support-desk-3" {
		t.Errorf("a taken slug became %q", got)
	}
}

func TestName_Valid(t *testing.T) {
	for name, want := range map[string]bool{
		"ab": true, "a": false, "a!": false, "é1": true, "": false, "--": false,
		strings.Repeat("é", 255): true, strings.Repeat("é", 256): false, "a\x00b": false,
	} {
		if got := project.ValidName(name); got != want {
			t.Errorf("ValidName(%.20q) = %v", name, got)
		}
	}
}
