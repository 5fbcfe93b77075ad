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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	items, _, err := w.Queries.Claim(t.Context(), todo.Claim{
		Holder: "one", Limit: 100, Now: noon, Until: noon.Add(time.Minute),
	})
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

// More projects have work than one claim covers: they take turns, and none waits for the backlog of
// another.
func TestClaimStepsThroughTheProjects(t *testing.T) {
	w := newWorld(t)
	const projects, each = 10, 3
	for p := range projects {
		w.project = uuid.NewSHA1(uuid.Nil, []byte{byte(p)})
		for n := range each {
			name := fmt.Sprint(p, " ", n)
			w.revised(name, name, alone)
		}
	}
	w.apply()
	var next uuid.UUID
	claimed := map[uuid.UUID]int{}
	claim := func(limit int) (items []todo.Item) {
		t.Helper()
		var err error
		items, next, err = w.Queries.Claim(t.Context(), todo.Claim{
			Holder: "one", Limit: limit, After: next, Now: noon, Until: noon.Add(time.Minute),
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range items {
			claimed[i.ProjectID]++
		}
		return items
	}
	for range projects / 2 {
		if items := claim(2); len(items) != 2 {
			t.Fatalf("claimed %d items", len(items))
		}
	}
	if len(claimed) != projects {
		t.Fatalf("so many claims as projects served %d of %d", len(claimed), projects)
	}
	// A project without work is skipped, and the claim is filled from the others, also after the
	// last project.
	if items := claim(projects*each - projects - 1); len(items) != projects*each-projects-1 {
		t.Errorf("claimed %d items", len(items))
	}
	if items := claim(100); len(items) != 1 {
		t.Errorf("claimed %d items at last", len(items))
	}
	for p, n := range claimed {
		if n != each {
			t.Errorf("project %s: claimed %d of %d", p, n, each)
		}
	}
	if items := claim(100); len(items) != 0 {
		t.Errorf("claimed %d items of nothing", len(items))
	}
}

// A project whose items may not be derived does not keep the claim from other projects.
func TestClaimLooksBehindProjectsThatWait(t *testing.T) {
	w := newWorld(t)
	for p := range 40 {
		w.project = uuid.NewSHA1(uuid.Nil, []byte{byte(p)})
		w.revised(fmt.Sprint(p), fmt.Sprint(p), alone)
	}
	w.apply()
	c := todo.Claim{Holder: "one", Limit: 39, Now: noon, Until: noon.Add(time.Minute)}
	if items, _, err := w.Queries.Claim(t.Context(), c); err != nil || len(items) != 39 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	c.Limit = 1
	if items, _, err := w.Queries.Claim(t.Context(), c); err != nil || len(items) != 1 {
		t.Errorf("%d items, %v", len(items), err)
	}
}
