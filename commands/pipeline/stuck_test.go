package pipeline

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/directory"
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
	log := engine.NewJournal(g, w.log.Codec, w.log.Logger)
	log.Namespaces = w.log.Namespaces
	w.finishOver(log)
	return g
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
	if len(list) != 1 || list[0].ID != stuck || list[0].Position == 0 || !engine.Lasting(list[0].Err) {
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
		if engine.Lasting(err) {
			t.Errorf("%v is said to last", err)
		}
	}
}

// guarded denies the user of a store rights, and counts what it denied.
type guarded struct {
	mu     sync.Mutex
	rights map[eventstore.Right]bool
	calls  int
}

// set takes these rights from the user, and gives all others.
func (g *guarded) set(denied map[eventstore.Right]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rights = denied
}

// denied returns how many calls were denied.
func (g *guarded) denied() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls
}

func (g *guarded) deny(right eventstore.Right, name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.rights[right] {
		return nil
	}
	g.calls++
	return eventstore.Denied(right, name, errors.New("Access Denied"))
}

func (g *guarded) write(_ context.Context, to write, store func() error) error {
	switch to.kind {
	case tombstones:
		if err := g.deny(eventstore.MayDelete, to.stream); err != nil {
			return err
		}
	case truncates:
		err := cmp.Or(g.deny(eventstore.MayWrite, "$$"+to.stream), g.deny(eventstore.MayWriteMetadata, to.stream))
		if err != nil {
			return err
		}
	}
	return store()
}

// The store denies the user what an erasure needs: that is counted with the right that is missing, tried again with
// pauses, and ends once the right is given.
func TestErasure_Denied(t *testing.T) {
	w := newIdleHarness(t)
	g := &guarded{rights: map[eventstore.Right]bool{
		eventstore.MayDelete: true, eventstore.MayWriteMetadata: true,
	}}
	journal := engine.NewJournal(around{w.store, g.write}, w.log.Codec, w.log.Logger)
	journal.Namespaces = w.log.Namespaces
	w.finishOver(journal)
	for _, id := range []string{"a", "b", "c"} {
		w.ingest(item(id, "text of "+id))
	}
	for _, ids := range [][]string{{"a", "b"}, {"c"}} {
		w.remove(ids...)
	}
	w.ok(w.write.BulkIdentities(t.Context(), w.call, []identity.Row{{Identity: "ana"}}))
	runtest.Must(t, w.over(around{w.store, g.write}).DeleteIdentity(t.Context(), w.call, "ana"))
	w.passHead()
	w.clock.move(time.Hour)

	var done erasure.Report
	w.finisher.round(t.Context(), false, &done)
	denied := w.finisher.Denied()
	if denied == nil || denied.Count != 3 { // two deletions and an identity
		t.Fatalf("denied are %+v, done is %+v", denied, done)
	}
	if text := denied.Error(); !strings.Contains(text, `the right "$`) || strings.Contains(text, "\n") {
		t.Errorf("it reads %q", text)
	}
	if len(w.finisher.Stuck()) != 0 {
		t.Error("what is deleted is said to be served")
	}
	before := g.denied()
	for range 3 {
		w.finisher.round(t.Context(), false, &done)
	}
	if n := g.denied() - before; n != 0 {
		t.Errorf("%d calls were made without a pause", n)
	}
	if _, err := w.finisher.EraseNow(t.Context()); erasure.Denied(err) == nil || g.denied() == before {
		t.Errorf("asked for, %d calls: %v", g.denied()-before, err)
	}

	g.set(map[eventstore.Right]bool{eventstore.MayWriteMetadata: true})
	w.clock.move(stuckPause)
	w.finisher.round(t.Context(), false, &done)
	if denied = w.finisher.Denied(); denied == nil || denied.Count != 1 ||
		!strings.Contains(denied.Error(), `the right "$mw"`) {
		t.Errorf("with the right to delete, denied are %v", denied)
	}
	g.set(nil)
	w.clock.move(time.Hour)
	if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Left.Deletions+done.Left.Identities != 0 {
		t.Errorf("with every right: %+v, %v", done, err)
	}
	if denied = w.finisher.Denied(); denied != nil {
		t.Errorf("with every right, denied are %v", denied)
	}
}

// damaged is a store that reads other bytes in one stream than were written.
type damaged struct {
	eventstore.Store
	stream string
}

func (d damaged) Read(ctx context.Context, name string, from eventstore.Revision, direction eventstore.Direction,
	limit int,
) ([]eventstore.Recorded, error) {
	events, err := d.Store.Read(ctx, name, from, direction, limit)
	for n := range events {
		if name == d.stream {
			events[n].Data = bytes.ReplaceAll(events[n].Data, []byte{'1'}, []byte{'2'})
			events[n].Data = events[n].Data[:len(events[n].Data)-1]
		}
	}
	return events, err
}

// A bulk write whose rows are gone or damaged between its commit and its fan-out is given up, by
// the start as by a round: it is said, and holds up nobody.
func TestBulkWrite_UnreadableRows(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	abandoned := 0
	for name, finish := range map[string]func(context.Context, *Finisher) error{
		"at the start": func(ctx context.Context, f *Finisher) error { return f.CatchUp(ctx) },
		"by a round": func(ctx context.Context, f *Finisher) error {
			_, err := f.EraseNow(ctx)
			return err
		},
	} {
		for _, gone := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", gone", false: ", damaged"}[gone], func(t *testing.T) {
				w.part(t)
				abandoned++
				w.ok(w.write.PutIdentity(t.Context(), w.call, "bo", map[string]string{"city": "Porto"}))
				w.dead(w.stop(2).BulkIdentities(t.Context(), w.call,
					[]identity.Row{{Identity: "ana", Traits: map[string]string{"a": "1"}}, {Identity: "bo"}}))
				w.passHead()
				open, err := w.directory.PendingBulks(t.Context(), 10)
				if err != nil || len(open) != 1 {
					t.Fatalf("open bulk writes %v, %v", open, err)
				}
				stage := w.stageOf(open[0].ID)
				var said bytes.Buffer
				store := w.store
				if gone {
					last, _, err := w.store.ReadLast(t.Context(), stage)
					if err == nil {
						_, err = w.store.Tombstone(t.Context(), stage, last.Revision)
					}
					runtest.Must(t, err)
				} else {
					store = damaged{w.store, stage}
				}
				w.finishOver(engine.NewJournal(store, w.log.Codec, slog.New(slog.NewTextHandler(&said, nil))))
				if left, err := w.finisher.Pending(t.Context()); err != nil || left.FanOuts != 1 {
					t.Errorf("what waits before: %+v, %v", left, err)
				}
				runtest.Must(t, finish(t.Context(), w.finisher))
				w.passHead()
				if lost, err := directory.AbandonedBulks(t.Context(), w.db); err != nil || lost != abandoned {
					t.Errorf("%d bulk writes are said to be lost, want %d, %v", lost, abandoned, err)
				}
				if left, err := w.finisher.Pending(t.Context()); err != nil || left.FanOuts != 0 {
					t.Errorf("what waits after: %+v, %v", left, err)
				}
				if log := said.String(); strings.Count(log, "level=ERROR") != 1 ||
					!strings.Contains(log, "bulk write abandoned, its rows cannot be read") {
					t.Errorf("the log has:\n%s", log)
				}
				w.wantEnded(t, stage)
				// Who was named by it is written and removed as ever.
				if _, err := w.write.PutIdentity(t.Context(), w.call, "ana", map[string]string{"a": "2"}); err != nil {
					t.Error(err)
				}
				if _, err := w.write.BulkIdentities(t.Context(), w.call,
					[]identity.Row{{Identity: "ana"}, {Identity: "bo"}}); err != nil {
					t.Error(err)
				}
				if err := w.write.DeleteIdentity(t.Context(), w.call, "ana"); err != nil {
					t.Error(err)
				}
				if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Identities != 1 {
					t.Errorf("erased %+v, %v", done, err)
				}
			})
		}
	}
}

// stageOf is the stream that holds the rows of a bulk write.
func (w *harness) stageOf(bulk uuid.UUID) string {
	w.t.Helper()
	facts, err := w.log.ReadFrom(w.t.Context(), stream.Name(stream.Bulk, bulk), 0)
	if err != nil || len(facts) == 0 {
		w.t.Fatalf("bulk write: %d events, %v", len(facts), err)
	}
	return facts[0].Event.(*identity.BulkAccepted).Rows.Stream
}
