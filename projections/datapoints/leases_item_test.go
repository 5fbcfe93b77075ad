package datapoints_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/work"
)

func TestLease_Texts(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	label, when, big := "standup", noon.Add(-time.Hour), strings.Repeat("x", 200<<10)
	for name, body := range map[string]datapoint.Body{
		"all":          {Content: datapoint.Text{Inline: "small\x00"}, Metadata: &datapoint.Text{Inline: `{"a":1}`}},
		"bare":         {Content: datapoint.Text{Inline: "bare"}},
		"big":          {Content: datapoint.Text{Inline: big}},
		"big metadata": {Content: datapoint.Text{Inline: "small"}, Metadata: &datapoint.Text{Inline: `"` + big + `"`}},
		"blob":         {Content: datapoint.Text{Blob: &blob.Ref{Stream: "blob-1", Size: 3}}},
		"blob of metadata": {
			Content: datapoint.Text{Inline: "small"}, Metadata: &datapoint.Text{Blob: &blob.Ref{Stream: "blob-1", Size: 3}},
		},
	} {
		e := &datapoint.RevisionAccepted{
			Send: w.send(name, alone),
			States: datapoint.States{
				Effect: datapoint.State{SourceID: name, Revision: 1, LastNumber: 1, IngestionID: id(name), OccurredAt: when},
			},
			Body: body,
		}
		if name == "all" {
			e.Author, e.Effect.Label = "ana", &label
		}
		w.last = w.Append(stream.Name(stream.DataPoint, id(name)), e)
	}
	w.apply()
	items, _, err := w.Queries.Lease(t.Context(),
		work.LeaseRequest{Lane: work.LaneLive, Holder: "one", Limit: 100, Now: noon, Until: noon.Add(time.Minute)})
	if err != nil || len(items) != 6 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	got := map[uuid.UUID]*work.Text{}
	for _, i := range items {
		got[i.DataPoint] = i.Text
	}
	want := map[uuid.UUID]*work.Text{
		id("all"):          {Content: "small\x00", Metadata: []byte(`{"a":1}`), Label: "standup", Author: "ana", OccurredAt: when},
		id("bare"):         {Content: "bare", OccurredAt: when},
		id("big"):          {Content: big, OccurredAt: when},
		id("big metadata"): {Content: "small", Metadata: []byte(`"` + big + `"`), OccurredAt: when},
		id("blob"):         nil, id("blob of metadata"): nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// One lease returns large texts of at most 4 MiB in all its windows, and every small text.
func TestLease_LargeTextsAreBounded(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	accept := func(name, text string) {
		w.last = w.Append(stream.Name(stream.DataPoint, id(name)), &datapoint.RevisionAccepted{
			Send: w.send(name, alone),
			States: datapoint.States{
				Effect: datapoint.State{SourceID: name, Revision: 1, LastNumber: 1, IngestionID: id(name), OccurredAt: noon},
			},
			Body: datapoint.Body{Content: datapoint.Text{Inline: text}},
		})
	}
	for n := range 25 {
		accept(fmt.Sprint(n), strings.Repeat("x", 220<<10))
	}
	w.project = neighbour.ID
	accept("small", "small")
	w.apply()
	// A window of ten for each of the two projects, then one of nine for the first.
	items, _, err := w.Queries.Lease(t.Context(),
		work.LeaseRequest{Lane: work.LaneLive, Holder: "one", Limit: 20, Now: noon, Until: noon.Add(time.Minute)})
	if err != nil || len(items) != 20 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	large, small := 0, 0
	for _, i := range items {
		switch {
		case i.Text == nil:
		case i.Text.Content == "small":
			small++
		default:
			large++
		}
	}
	if large != 18 || small != 1 {
		t.Errorf("%d large texts and %d small ones, want 18 and 1", large, small)
	}
}

// A later revision comes with the head of the memories: where the last ones are, or the vectors directly
// after them. Attempts are not passed.
func TestLease_MemoryHead(t *testing.T) {
	t.Parallel()
	vectors := func(w *fixture) {
		w.last = w.Append(stream.Name(stream.Memory, id("a")),
			&memory.Embedded{ProjectID: w.project, Revision: 1, Part: 1, Parts: 1})
	}
	derived := func(w *fixture) { w.derived("s1", "a", 0, 1) }
	failed := func(w *fixture) { w.missed("s1", "a", 0, 1, 1, 0, true) }
	const none = -1
	for name, tt := range map[string]struct {
		events []func(*fixture)
		want   eventstore.Revision
	}{
		"memories":                         {[]func(*fixture){derived}, 0},
		"vectors":                          {[]func(*fixture){derived, vectors, vectors}, 2},
		"an attempt before the memories":   {[]func(*fixture){func(w *fixture) { w.started("s1", "a", 0, 1, 1, 0) }, derived}, 1},
		"no memories":                      {[]func(*fixture){failed}, none},
		"no memories, vectors":             {[]func(*fixture){failed, vectors}, none},
		"an attempt after the memories":    {[]func(*fixture){derived, func(w *fixture) { w.started("s2", "a", 0, 2, 1, 0) }}, 0},
		"vectors after a later attempt":    {[]func(*fixture){derived, func(w *fixture) { w.started("s2", "a", 0, 2, 1, 0) }, vectors}, 0},
		"memories that were derived again": {[]func(*fixture){derived, derived}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.revised("s1", "a", alone)
			w.apply()
			if items := w.leaseAt(noon); len(items) != 1 || items[0].Revision != 1 || items[0].MemoryHead != nil {
				t.Fatalf("leased %+v", items)
			}
			w.revised("s2", "a", alone)
			for _, e := range tt.events {
				e(w)
				w.apply() // page by page
			}
			items := w.leaseAt(noon.Add(time.Hour))
			if len(items) != 1 || items[0].Revision != 2 {
				t.Fatalf("leased %+v", items)
			}
			got := eventstore.Revision(none)
			if items[0].MemoryHead != nil {
				got = *items[0].MemoryHead
			}
			if got != tt.want {
				t.Errorf("head %d, want %d", got, tt.want)
			}
		})
	}
}

// leaseAt leases all due items.
func (w *fixture) leaseAt(now time.Time) []work.Item {
	w.t.Helper()
	items, _, err := w.Queries.Lease(w.t.Context(),
		work.LeaseRequest{Lane: work.LaneLive, Holder: "one", Limit: 100, Now: now, Until: now.Add(time.Minute)})
	if err != nil {
		w.t.Fatal(err)
	}
	return items
}
