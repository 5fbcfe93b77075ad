package pipeline

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

// garbled is a store in which the last event of some streams cannot be decoded, and reads of other
// streams fail for now.
type garbled struct {
	eventstore.Store
	streams, away map[string]bool
}

func (g *garbled) ReadLast(ctx context.Context, name string) (eventstore.Recorded, bool, error) {
	if g.away[name] {
		return eventstore.Recorded{}, false, eventstore.ErrUnavailable
	}
	r, ok, err := g.Store.ReadLast(ctx, name)
	if g.streams[name] {
		r.Data = []byte("{")
	}
	return r, ok, err
}

// garble makes the finisher read through a store in which the data points of some source ids cannot
// be read.
func (w *harness) garble(ids ...string) *garbled {
	g := &garbled{Store: w.store, streams: map[string]bool{}, away: map[string]bool{}}
	for _, id := range ids {
		g.streams[w.pointName(id)] = true
	}
	log := commands.NewJournal(g, w.log.Codec, w.log.Logger)
	log.Namespaces = w.log.Namespaces
	w.finishOver(log)
	return g
}

func (w *harness) pointName(id string) string {
	return stream.Name(stream.DataPoint, stream.DataPointID(w.call.Principal.Project.Namespace, id))
}

// A deletion that cannot be read blocks neither the start nor other deletions; a batch of its
// project waits.
func TestDeletion_Unreadable(t *testing.T) {
	w := newIdleHarness(t)
	w.clock.move(finishAfter)
	for _, id := range []string{"a", "b", "c", "d"} {
		w.ingest(item(id, "text of "+id))
	}
	stuck := w.commitDeletion("a", "b")
	w.commitDeletion("c", "d")
	w.commitBatch("key", item("e", "five"), item("f", "six"))
	w.passHead()
	g := w.garble("a")

	if err := w.finisher.CatchUp(t.Context()); err != nil {
		t.Fatalf("the start is held up: %v", err)
	}
	if live := w.live(); !slices.Equal(live, []string{"a", "b"}) {
		t.Errorf("live are %v: the other deletion is completed, and no batch", live)
	}
	list := w.finisher.Stuck()
	if len(list) != 1 || list[0].ID != stuck || list[0].Position == 0 || !commands.Lasting(list[0].Err) {
		t.Fatalf("stuck are %+v", list)
	}
	// The deletion is tried again each minute, and no more often.
	var done erasure.Report
	w.finisher.complete(t.Context(), false, &done)
	if done.Trouble != nil {
		t.Errorf("it was tried at once: %v", done.Trouble)
	}
	w.clock.move(stuckPause)
	w.finisher.complete(t.Context(), false, &done)
	if done.Trouble == nil {
		t.Error("it was not tried again")
	}
	clear(g.streams)
	w.clock.move(stuckPause)
	w.finisher.complete(t.Context(), false, new(erasure.Report))
	if list := w.finisher.Stuck(); len(list) != 0 {
		t.Errorf("repaired, stuck are %+v", list)
	}
	w.passHead()
	w.finisher.complete(t.Context(), false, new(erasure.Report))
	if live := w.live(); !slices.Equal(live, []string{"e", "f"}) {
		t.Errorf("repaired, live are %v", live)
	}
}

// A deletion that an operator has set aside is not tried and blocks no batch.
func TestDeletion_SetAside(t *testing.T) {
	w := newIdleHarness(t)
	for _, id := range []string{"a", "b"} {
		w.ingest(item(id, "text of "+id))
	}
	w.commitDeletion("a", "b")
	w.commitBatch("key", item("e", "five"), item("f", "six"))
	w.passHead()
	w.garble("a")
	runtest.Must(t, w.finisher.CatchUp(t.Context()))
	list := w.finisher.Stuck()
	if len(list) != 1 {
		t.Fatalf("stuck are %+v", list)
	}
	w.finisher.IsSetAside = func(at eventstore.Position) bool { return at == list[0].Position }
	runtest.Must(t, w.finisher.CatchUp(t.Context()))
	if list := w.finisher.Stuck(); len(list) != 0 {
		t.Errorf("set aside, stuck are %+v", list)
	}
	if live := w.live(); !slices.Equal(live, []string{"a", "b", "e", "f"}) {
		t.Errorf("set aside, live are %v", live)
	}
}

// A failure that may pass still prevents the start, so that deleted text is not served.
func TestDeletion_NotCompletedForNow(t *testing.T) {
	w := newIdleHarness(t)
	w.ingest(item("a", "one"))
	w.ingest(item("b", "two"))
	w.commitDeletion("a", "b")
	w.passHead()
	g := w.garble()
	g.away[w.pointName("a")] = true
	if err := w.finisher.CatchUp(t.Context()); err == nil {
		t.Error("the start goes on without a deletion that may be completed soon")
	}
	if list := w.finisher.Stuck(); len(list) != 0 {
		t.Errorf("stuck are %+v", list)
	}
	for _, err := range []error{
		eventstore.ErrUnavailable, eventstore.ErrUnknown, context.DeadlineExceeded, errors.New("something else"),
	} {
		if commands.Lasting(err) {
			t.Errorf("%v is said to last", err)
		}
	}
}
