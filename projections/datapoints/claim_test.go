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
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/todo"
)

// Of a project only the oldest items are looked at, and more where they are all of a data point that is being worked on.
func TestClaimLooksBehindADataPointWithManyOpenRevisions(t *testing.T) {
	w := newWorld(t)
	for n := range 90 {
		w.revised(fmt.Sprint("heavy ", n), "heavy", alone)
	}
	w.revised("s", "behind", alone)
	w.apply()
	w.wantClaimed([]string{"heavy 1 queued"}, "one", 1, noon)
	w.wantClaimed([]string{"behind 1 queued"}, "one", 1, noon)
	w.wantClaimed([]string{}, "one", 1, noon)
}

// A retry puts an item behind others of its data point that stand above it: none of them goes before it.
func TestClaimLooksBehindWhatARetryHoldsUp(t *testing.T) {
	w := newWorld(t)
	w.revised("first", "a", alone)
	w.started("first", "a", 0, 1, 5, 0)
	w.missed("first", "a", 0, 1, 5, 0, true)
	w.stopped("first", ingestion.Internal)
	for n := range 20 {
		w.revised(fmt.Sprint("later ", n), "a", alone)
	}
	w.retried("first", 1)
	w.apply()
	w.wantClaimed([]string{"a 1 queued"}, "one", 1, noon)
}

func TestClaimHandsOutSmallTexts(t *testing.T) {
	w := newWorld(t)
	label, when := "standup", noon.Add(-time.Hour)
	for name, body := range map[string]datapoint.Body{
		"all":          {Content: datapoint.Text{Inline: "small\x00"}, Metadata: &datapoint.Text{Inline: `{"a":1}`}},
		"bare":         {Content: datapoint.Text{Inline: "bare"}},
		"big":          {Content: datapoint.Text{Inline: strings.Repeat("x", 16<<10+1)}},
		"big metadata": {Content: datapoint.Text{Inline: "small"}, Metadata: &datapoint.Text{Inline: `"` + strings.Repeat("x", 16<<10) + `"`}},
		"blob":         {Content: datapoint.Text{Blob: &blob.Ref{Stream: "blob-1", Size: 3}}},
		"blob of metadata": {
			Content: datapoint.Text{Inline: "small"}, Metadata: &datapoint.Text{Blob: &blob.Ref{Stream: "blob-1", Size: 3}},
		},
	} {
		e := &datapoint.RevisionAccepted{
			Send:     w.send(name, alone),
			Standing: datapoint.Standing{Effect: datapoint.State{SourceID: name, Revision: 1, LastNumber: 1, IngestionID: id(name), OccurredAt: when}},
			Body:     body,
		}
		if name == "all" {
			e.Author, e.Effect.Label = "ana", &label
		}
		w.last = w.Append(stream.Name(stream.DataPoint, id(name)), e)
	}
	w.apply()
	items, err := w.Queries.Claim(t.Context(), "one", 100, noon, noon.Add(time.Minute))
	if err != nil || len(items) != 6 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	got := map[uuid.UUID]*todo.Text{}
	for _, i := range items {
		got[i.DataPoint] = i.Text
	}
	want := map[uuid.UUID]*todo.Text{
		id("all"):  {Content: "small\x00", Metadata: []byte(`{"a":1}`), Label: "standup", Author: "ana", OccurredAt: when},
		id("bare"): {Content: "bare", OccurredAt: when},
		id("big"):  nil, id("big metadata"): nil, id("blob"): nil, id("blob of metadata"): nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
