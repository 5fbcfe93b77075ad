package main

import (
	"strings"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
	"github.com/annals-project/annals/commands/erasure"
)

func startPeople(t *testing.T, f *operatortest.People) []string {
	t.Helper()
	f.Erased = erasure.Report{Deletions: 2, Store: "scavenged"}
	dir := t.TempDir()
	operatortest.Serve(t, dir, f.Routes()...)
	return []string{"erase", "--data-dir", dir, "--identity", "ana", "--project", "default"}
}

func TestErasePerson_DeletesForgetsAndErases(t *testing.T) {
	f := &operatortest.People{Points: 3, NamedIn: 5, Record: true}
	got := annals(t.Context(), nil, "", append(startPeople(t, f), "--yes")...)
	want := "deleted 2 data points, receipt 01000000-0000-0000-0000-000000000000\n" +
		"deleted 1 data point, receipt 01000000-0000-0000-0000-000000000000\n" +
		"data points deleted: 3\nrecord: removed\ncalls blanked: 5\ndeletions cleaned: 2\n"
	if got.code != exitOK || !strings.HasPrefix(got.stdout, want) || !strings.Contains(got.stderr, "ana wrote 3 data points") {
		t.Errorf("%+v", got)
	}
	if f.Begun != 1 || f.Points != 0 || f.Record {
		t.Errorf("left: %+v", f)
	}
}

func TestErasePerson_Unknown(t *testing.T) {
	f := &operatortest.People{}
	got := annals(t.Context(), nil, "", append(startPeople(t, f), "--yes")...)
	if got.code != exitPartly || !strings.Contains(got.stderr, `"ana" is not known in project default`) {
		t.Errorf("%+v", got)
	}
	f = &operatortest.People{Logged: 58} // calls of others
	got = annals(t.Context(), nil, "", append(startPeople(t, f), "--yes")...)
	if got.code != exitPartly || !strings.Contains(got.stderr, "is not known in project default") ||
		!strings.Contains(got.stderr, "58 calls of the request log lost their texts") {
		t.Errorf("a project with calls of others: %+v", got)
	}
	f = &operatortest.People{NamedIn: 2} // only asked
	if got := annals(t.Context(), nil, "", append(startPeople(t, f), "--yes")...); got.code != exitOK {
		t.Errorf("a person who only asked: %+v", got)
	}
}

func TestErasePerson_AsksOnATerminalOnly(t *testing.T) {
	f := &operatortest.People{Points: 1, Record: true}
	args := startPeople(t, f)
	got := annals(t.Context(), nil, "y\n", args...)
	if got.code != exitUsage || !strings.Contains(got.stderr, "add --yes") || f.Points != 1 || !f.Record || f.Begun != 0 {
		t.Errorf("%+v, %+v", got, f)
	}
}

func TestErasePerson_Flags(t *testing.T) {
	for _, args := range [][]string{
		{"--identity", "ana"},
		{"--project", "default"},
		{"--yes"},
		{"--org", "Acme"},
		{"--identity", "ana", "--project", "default", "--now"},
	} {
		if got := annals(t.Context(), nil, "", append([]string{"erase", "--data-dir", t.TempDir()}, args...)...); got.code != exitUsage {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
