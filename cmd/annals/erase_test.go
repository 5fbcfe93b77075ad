package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/internal/work"
)

// startEraser serves the erasure of a data folder, which it returns.
func startEraser(t *testing.T, d *operatortest.Eraser) string {
	t.Helper()
	dir := t.TempDir()
	operatortest.Serve(t, dir, d.Routes()...)
	return dir
}

func TestErase_ReportsWhatWaits(t *testing.T) {
	until := time.Date(2026, 11, 22, 8, 0, 0, 0, time.FixedZone("", 3600))
	tests := []struct {
		name    string
		pending work.Open
		want    string
	}{
		{"nothing", work.Open{}, "nothing waits to be erased\n"},
		{"deletions", work.Open{Deletions: 2, DataPoints: 7}, "waiting: 2 deletions of 7 data points, 0 operations to be completed\n"},
		{"identities", work.Open{Identities: 1}, "waiting: 0 deletions of 0 data points, 0 operations to be completed, 1 removed identity\n"},
		{
			"blobs",
			work.Open{FanOuts: 1, Deletions: 2, DataPoints: 7, Identities: 4, Blobs: 3, Until: &until},
			"waiting: 2 deletions of 7 data points, 1 operation to be completed, 4 removed identities, 3 texts of sends that were never stored (until 2026-11-22T07:00:00Z)\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := &operatortest.Eraser{Pending: tt.pending}
			dir := startEraser(t, d)
			annals(t.Context(), nil, "", "erase", "--data-dir", dir).prints(t, tt.want)
			got := annals(t.Context(), nil, "", "erase", "--json", "--data-dir", dir)
			var read work.Open
			err := json.Unmarshal([]byte(got.stdout), &read)
			if diff := cmp.Diff(tt.pending, read); got.code != exitOK || err != nil || diff != "" {
				t.Errorf("as JSON: %+v, %v\n%s", got, err, diff)
			}
			if d.Calls != 0 {
				t.Error("asking what waits erased it")
			}
		})
	}
}

func TestErase_NowReportsWhatWasErased(t *testing.T) {
	d := &operatortest.Eraser{
		Erased: erasure.Report{
			Deletions: 5, Identities: 4, Streams: 6, Blobs: 7, Tables: 8, Indexes: 9, Store: "scavenged",
			Left: work.Open{Deletions: 1, DataPoints: 4},
		},
	}
	dir := startEraser(t, d)
	want := "deletions cleaned: 5\nremoved identities cleared: 4\nstreams ended: 6\nblobs swept: 7\n" +
		"tables vacuumed: 8\nindexes rewritten: 9\nevent store: scavenged\n" +
		"waiting: 1 deletion of 4 data points, 0 operations to be completed\n"
	annals(t.Context(), nil, "", "erase", "--now", "--data-dir", dir).prints(t, want)
	got := annals(t.Context(), nil, "", "erase", "--now", "--json", "--data-dir", dir)
	var read erasure.Report
	err := json.Unmarshal([]byte(got.stdout), &read)
	diff := cmp.Diff(d.Erased, read, cmpopts.IgnoreUnexported(erasure.Report{}))
	if got.code != exitOK || err != nil || diff != "" {
		t.Errorf("as JSON: %+v, %v\n%s", got, err, diff)
	}
	if d.Calls != 2 {
		t.Errorf("erased %d times", d.Calls)
	}
	d.Refuse = errors.New("no space left on device")
	for _, args := range [][]string{{"erase"}, {"erase", "--now"}, {"erase", "--now", "--json"}} {
		annals(t.Context(), nil, "", append(args, "--data-dir", dir)...).fails(t, exitFailed, "no space left")
	}
}

func TestErase_WithoutServer(t *testing.T) {
	for _, args := range [][]string{{"erase"}, {"erase", "--now"}} {
		annals(t.Context(), nil, "", append(args, "--data-dir", t.TempDir())...).
			fails(t, exitFailed, "no server is running")
	}
}

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
	annals(t.Context(), nil, "", append(startPeople(t, f), "--yes")...).wants(t, exitOK)
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
		annals(t.Context(), nil, "", append([]string{"erase", "--data-dir", t.TempDir()}, args...)...).
			wants(t, exitUsage)
	}
}
