package auditcli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/audit/state"
	"github.com/annals-project/annals/projections/audit/verify"
)

func TestStatus_Words(t *testing.T) {
	id, at := uuid.MustParse("22222222-2222-4222-8222-222222222222"), time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	got := words(state.State{
		Organization: id, Name: "acme", Events: 12, Uncovered: 2, Since: at, Origin: "annals/l/o/1", Keys: []string{"k1", "k2"},
		Checkpoint: &state.Checkpoint{Events: 10, At: at}, Cosigned: &state.Checkpoint{Events: 7, At: at},
		Copies: []state.Copy{{Place: "anchor /x", Events: 10}, {Place: "witness w", Events: 7, Since: at}},
	}, at.Add(90*time.Second))
	want := `acme (22222222-2222-4222-8222-222222222222)
  events:      12, 2 without a checkpoint
  checkpoint:  10 events, 2026-11-21T09:00:00Z (1m30s ago)
  waits:       for a checkpoint since 2026-11-21T09:00:00Z (1m30s ago)
  cosigned:    7 events, 2026-11-21T09:00:00Z (1m30s ago)
  copy:        anchor /x: 10 events, has the last checkpoint
  copy:        witness w: 7 events, waits for a newer one since 2026-11-21T09:00:00Z (1m30s ago)
  origin:      annals/l/o/1
  key:         k1
  key:         k2
`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := words(state.State{}, at); got != "the deployment\n  events:      0, 0 without a checkpoint\n  checkpoint:  none yet\n" {
		t.Errorf("a tree that is not built: %s", got)
	}
}

func TestVerify_Words(t *testing.T) {
	id := uuid.MustParse("22222222-2222-4222-8222-222222222222")
	report := verify.Report{Events: 9, Head: 77, Trees: []verify.Tree{
		{Size: 3, Checked: 3, Checkpoints: 1, Covered: 2}, {Organization: id, Size: 5, Checked: 5},
	}}
	got := verified(report)
	for _, want := range []string{
		"the deployment: leaves 3, checked 3; checkpoints 1, the newest covers 2\n",
		id.String() + ": leaves 5", "events read: 9, up to position 77; without a checkpoint yet: 6\n", "nothing is wrong\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
	report.Finding = &verify.Finding{
		Organization: id, Index: 4, Stream: "usage-1", Revision: 2, EventID: id, What: verify.Changed, Detail: "not its event",
	}
	got = verified(report)
	want := "WRONG: changed, leaf 4 of the tree of organization " + id.String() + ", event " + id.String() +
		", revision 2 of stream usage-1: not its event\n"
	if !strings.HasSuffix(got, want) || strings.Contains(got, "nothing is wrong") {
		t.Errorf("%s lacks %s", got, want)
	}
}

func TestFlags_WhatDoesNotGoTogether(t *testing.T) {
	if (&ProveCmd{Kind: "source"}).Validate() == nil || (&ProveCmd{Kind: "request", WithSalt: true}).Validate() == nil {
		t.Error("a source, or the salt, needs no project")
	}
	if err := (&ProveCmd{Kind: "request"}).Validate(); err != nil {
		t.Error(err)
	}
	if (TreeFlags{Org: "acme", Deployment: true}).Validate() == nil {
		t.Error("the deployment goes with an organization")
	}
}

func TestExport_Out(t *testing.T) {
	dir := t.TempDir()
	for _, out := range []string{dir + "/bundle", dir + "/bundle.zip"} {
		to, err := openBundle(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"checkpoint", "tile/0/000.p/1"} {
			w, err := to.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if err := to.Close(); err != nil || to.files != 2 {
			t.Errorf("%s: %d files, %v", out, to.files, err)
		}
		if _, err := openBundle(out); err == nil {
			t.Errorf("%s is written over", out)
		}
	}
}
