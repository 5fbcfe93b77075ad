package commands_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// hint returns fixed data points as sent, independently of the log.
type hint struct {
	sent map[uuid.UUID]struct{}
	err  error
}

func (h hint) Sent(context.Context, []uuid.UUID) (map[uuid.UUID]struct{}, error) {
	return h.sent, h.err
}

// reads counts the reads of streams of data points.
type reads struct {
	eventstore.Store
	count atomic.Int64
}

func (r *reads) ReadLast(ctx context.Context, name string) (eventstore.Recorded, bool, error) {
	if stream.Category(name) == stream.DataPoint {
		r.count.Add(1)
	}
	return r.Store.ReadLast(ctx, name)
}

// hinted returns a process whose batches use a hint, and the counter of its reads.
func (w *fixture) hinted(h hint) (*fixture, *reads) {
	w.t.Helper()
	counted := &reads{Store: w.store}
	other := fixtureOver(w.t, counted)
	other.configure(func(c *commands.Config) { c.DataPoints = h })
	return other, counted
}

func (w *fixture) sentOf(ids ...string) map[uuid.UUID]struct{} {
	sent := make(map[uuid.UUID]struct{})
	for _, id := range ids {
		sent[stream.DataPointID(w.call.Principal.Project.Namespace, id)] = struct{}{}
	}
	return sent
}

func TestIngestBatch_ReadsOnlyKnownDataPoints(t *testing.T) {
	w := newFixture(t)
	w.ingest(text("old", "one"), "")
	on, counted := w.hinted(hint{sent: w.sentOf("old")})
	r := on.batch([]commands.DataPoint{text("new", "a"), text("old", "one"), text("newer", "b")}, "")
	if n := counted.count.Load(); n != 1 {
		t.Errorf("%d streams were read, want that of the known one", n)
	}
	for i, want := range []string{commands.StatusQueued, commands.StatusCompleted, commands.StatusQueued} {
		if r.Items[i].Status != want {
			t.Errorf("item %d: %+v", i, r.Items[i])
		}
	}
	wantTypes(t, w.types("old"), accepted, resent)
}

// A batch decides again on the log for an item that the projection has not applied yet.
func TestIngestBatch_StaleHint(t *testing.T) {
	w := newFixture(t)
	w.ingest(text("same", "one", labelled("kept"), with(`{"a":1}`)), "")
	w.ingest(text("changed", "one", labelled("kept"), with(`{"a":1}`)), "")
	for _, content := range []string{"one", "two", "three"} {
		w.ingest(text("long", content), "")
	}
	items := []commands.DataPoint{text("same", "one"), text("changed", "two"), text("long", "two"), text("new", "x")}
	on, _ := w.hinted(hint{})
	r := on.batch(items, "key")
	queued := commands.StatusQueued
	for i, want := range []string{commands.StatusCompleted, queued, queued, queued} {
		if r.Items[i].Status != want {
			t.Errorf("item %d: %+v, want %s", i, r.Items[i], want)
		}
	}
	wantTypes(t, w.types("same"), accepted, resent)
	wantTypes(t, w.types("changed"), accepted, accepted)
	changed, ok := w.history("changed")[1].Event.(*datapoint.RevisionAccepted)
	if !ok || changed.Effect.Revision != 2 || changed.Effect.Label == nil || *changed.Effect.Label != "kept" ||
		changed.Metadata == nil ||
		changed.Metadata.Inline != `{"a":1}` {
		t.Errorf("the omitted label and metadata were not kept: %+v", changed)
	}
	long, ok := w.history("long")[3].Event.(*datapoint.RevisionAccepted)
	if !ok || long.Effect.Revision != 4 || long.Historic() {
		t.Errorf("a fourth revision is %+v", long)
	}
	for _, id := range []string{"same", "changed", "long", "new"} {
		wantCommitOrder(t, w.history(id))
	}
	// The repeated key returns the same answer and stores no item twice.
	if again := on.batch(items, "key"); again.IngestionID != r.IngestionID ||
		again.Items[0].Status != commands.StatusCompleted {
		t.Errorf("the same key answers %+v", again)
	}
	wantTypes(t, w.types("new"), accepted)
}

// If the projection is late, a deletion that is not answered yet ends the item. An answered
// deletion refuses the batch.
func TestIngestBatch_DeletedDataPoint(t *testing.T) {
	w := newFixture(t)
	for _, id := range []string{"answered", "unanswered"} {
		w.ingest(text(id, "x"), "")
		if _, err := w.DeleteDataPoints(t.Context(), w.call, []string{id}); err != nil {
			t.Fatal(err)
		}
	}
	on, _ := w.hinted(hint{sent: w.sentOf("answered")})
	_, err := on.IngestBatch(t.Context(), on.call, []commands.DataPoint{text("new", "y"), text("answered", "x")}, "")
	if f := wantFault(t, err, fault.CodeDataPointDeleted); f.Data["item"] != 1 {
		t.Errorf("data %v", f.Data)
	}
	r := on.batch([]commands.DataPoint{text("unanswered", "x"), text("new", "y")}, "")
	if r.Items[0].Status != commands.StatusCompleted || r.Items[0].Unchanged != nil ||
		r.Items[1].Status != commands.StatusQueued {
		t.Errorf("receipt %+v", r)
	}
	if types := w.types("unanswered"); len(types) != 2 {
		t.Errorf("the deleted data point has %v", types)
	}
}

func TestIngestBatch_NoHint(t *testing.T) {
	w := newFixture(t)
	w.ingest(text("old", "one"), "")
	on, counted := w.hinted(hint{err: errors.New("no database")})
	var items []commands.DataPoint
	for i := range 9 {
		items = append(items, text(fmt.Sprint("new ", i), "x"))
	}
	r := on.batch(append(items, text("old", "one")), "")
	if n := counted.count.Load(); n != 10 {
		t.Errorf("%d streams were read, want all 10", n)
	}
	if r.Items[9].Status != commands.StatusCompleted {
		t.Errorf("receipt %+v", r.Items[9])
	}
}
