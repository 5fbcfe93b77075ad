package pipeline

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

// commitDeletion commits a bulk deletion whose process dies before it fans out, and returns its id.
func (w *harness) commitDeletion(ids ...string) uuid.UUID {
	w.t.Helper()
	head, err := w.store.Head(w.t.Context())
	runtest.Must(w.t, err)
	w.dead(w.stop(1).DeleteDataPoints(w.t.Context(), w.call, ids))
	page, err := w.store.ReadAll(w.t.Context(), head, 100)
	runtest.Must(w.t, err)
	for _, r := range page {
		if r.Type == "deletion.accepted.v1" {
			return stream.Owner(r.Stream)
		}
	}
	w.t.Fatal("the deletion is not committed")
	return uuid.Nil
}

// reaching is a store that takes appends to some streams, and never answers those to others.
type reaching struct {
	eventstore.Store
	streams []string
}

func (r reaching) Append(ctx context.Context, name string, expected eventstore.Revision,
	events []eventstore.Proposed,
) (eventstore.Appended, error) {
	if !slices.Contains(r.streams, name) {
		<-ctx.Done()
		return eventstore.Appended{}, errDied
	}
	return r.Store.Append(ctx, name, expected, events)
}

// resumeFor runs the fan-out of a deletion until it has taken these data points, and no others.
func (w *harness) resumeFor(deletion uuid.UUID, ids ...string) {
	w.t.Helper()
	var names []string
	for _, id := range ids {
		names = append(names, stream.Name(stream.DataPoint, stream.DataPointID(w.call.Principal.Project.Namespace, id)))
	}
	log := commands.NewJournal(reaching{w.store, names}, w.log.Codec, w.log.Logger)
	ctx, kill := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { _, err := log.ResumeDeletion(ctx, deletion, at); ended <- err }()
	for _, name := range names {
		w.until("the data point is taken", func() bool {
			last, _, err := w.log.Last(w.t.Context(), name)
			runtest.Must(w.t, err)
			_, taken := last.Event.(*datapoint.Deleted)
			return taken
		})
	}
	kill()
	if err := <-ended; err == nil {
		w.t.Fatal("the fan-out is complete")
	}
}

// Of two deletions of the same data points each took some: neither waits for the other with its own part.
func TestEraseNow_TenPairsOfOverlappingDeletions(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	var words []string
	for pair := range 10 {
		secret := runtest.Word()
		words = append(words, secret)
		items, ids := make([]commands.DataPoint, 6), make([]string, 6)
		for i := range items {
			ids[i] = fmt.Sprintf("%d of pair %d", i, pair)
			items[i] = item(ids[i], "Ana met "+secret)
		}
		w.ingestBatch(items...)
		one, other := w.commitDeletion(ids[:5]...), w.commitDeletion(ids[1:]...)
		w.resumeFor(one, ids[:3]...)
		w.resumeFor(other, ids[3:]...)
	}
	w.passHead()
	done, err := w.finisher.EraseNow(t.Context())
	if err != nil || done.Deletions != 20 || done.Left.Deletions+done.Left.DataPoints+done.Left.FanOuts != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	for _, secret := range words {
		w.gone(secret)
	}
}

// While another deletion has not erased its part, one that overlaps it is purged, and not recorded as cleaned.
func TestErase_DeletionThatWaitsForAnother(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	counting := &countingStore{}
	w.finisher.Eraser.Store = counting
	w.ingestBatch(item("a", "one"), item("b", "two"),
		item("c", "three"))
	one, other := w.commitDeletion("a", "b"), w.commitDeletion("b", "c")
	w.resumeFor(other, "b")
	if _, err := w.log.ResumeDeletion(t.Context(), one, at); err != nil {
		t.Fatal(err)
	}
	w.passHead()
	for round := range 3 {
		var done erasure.Report
		if _, err := w.finisher.clean(t.Context(), true, &done); err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			runtest.Must(t, w.finisher.Eraser.RetainAll(t.Context()))
		}
		if done.Deletions != 0 {
			t.Fatalf("round %d: %d deletions are cleaned", round, done.Deletions)
		}
	}
	gone := 0
	for _, id := range []string{"a", "b", "c"} {
		name := stream.Name(stream.DataPoint, stream.DataPointID(w.call.Principal.Project.Namespace, id))
		if _, _, err := w.store.ReadLast(t.Context(), name); err != nil {
			gone++
		}
	}
	if gone != 1 {
		t.Errorf("%d of the data points are erased, want the one of the deletion that is fanned out", gone)
	}
	w.passHead()
	if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Deletions != 2 || done.Left.Deletions != 0 {
		t.Errorf("%+v, %v", done, err)
	}
}
