package runner

import (
	"context"
	"testing"
	"time"

	"github.com/annals-project/annals/eventstore"
)

// strict returns a runtime that never trusts its memory, with two pages applied; first and last are
// their ends.
func strict(t *testing.T, w *fixture) (rt *Runtime, stop func(), first, last eventstore.Position) {
	t.Helper()
	rt = w.runtime(t, func(c *Config) { c.Lease = time.Hour }, tally{family: "apple"})
	for _, r := range rt.runners {
		r.trust = 0
	}
	stop = run(t, rt)
	first = w.add(t, "apple-1", 1)
	mustWait(t, rt.Waiter(), first, "apples")
	last = w.add(t, "apple-1", 2, 3)
	mustWait(t, rt.Waiter(), last, "apples")
	return rt, stop, first, last
}

// fallBack resets rows and checkpoint to a position, as if an older copy of the database replaced
// it; also is a further change of the checkpoint.
func (w *fixture) fallBack(t *testing.T, at eventstore.Position, also string) {
	t.Helper()
	w.exec(t, `with fallen as (update apples.totals set total = 1, events = 1)
		update apples.checkpoint set position = $1, last_event_id = null`+also, int64(at))
}

func wantLate(t *testing.T, waiter *Waiter, pos eventstore.Position) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	wantUnavailable(t, waiter.Wait(ctx, pos, "apples"), "late")
}

func TestWait_DatabaseRestoredToOlderState(t *testing.T) {
	w := newWorld(t)
	rt, _, first, last := strict(t, w)
	w.fallBack(t, first, "")
	mustWait(t, rt.Waiter(), last, "apples")
	w.wantTotals(t, "apples", total{"apple-1", 6, 3})
}

func TestPosition_LeaseTaken(t *testing.T) {
	w := newWorld(t)
	rt, _, first, last := strict(t, w)
	w.fallBack(t, first, `, epoch = epoch + 1, holder = 'another', until = clock_timestamp() + interval '1 hour'`)
	if at, err := rt.Waiter().Position(t.Context(), "apples"); err != nil || at != first {
		t.Errorf("position is %d, %v, and the rows are at %d", at, err, first)
	}
	wantLate(t, rt.Waiter(), last)
	w.exec(t, `update apples.checkpoint set until = clock_timestamp()`)
	mustWait(t, rt.Waiter(), last, "apples")
	w.wantTotals(t, "apples", total{"apple-1", 6, 3})
}

func TestPosition_LeaseExpired(t *testing.T) {
	w := newWorld(t)
	rt, stop, first, last := strict(t, w)
	stop()
	mustWait(t, rt.Waiter(), last, "apples")
	w.fallBack(t, first, "")
	wantLate(t, rt.Waiter(), last)
}

func TestWait_CheckpointCannotBeRead(t *testing.T) {
	w := newWorld(t)
	rt, _, _, last := strict(t, w)
	tx, err := w.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `lock table apples.checkpoint in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	wantLate(t, rt.Waiter(), last)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustWait(t, rt.Waiter(), last, "apples")
}

// While pages are committed, no waiter reads the database.
func TestPosition_RecentCheckIsTrusted(t *testing.T) {
	turn := newLease(1, 7, time.Now())
	if !turn.confirmedWithin(time.Minute, time.Time{}) {
		t.Error("a check of now is not trusted")
	}
	turn = newLease(1, 7, time.Now().Add(-time.Hour))
	if turn.confirmedWithin(time.Minute, time.Time{}) {
		t.Error("a check of an hour ago is trusted")
	}
	if now := time.Now(); newLease(1, 7, now).confirmedWithin(time.Minute, now.Add(time.Second)) {
		t.Error("a check of before the connection was watched is trusted")
	}
	// After a suspension of the machine the monotonic clock has stopped meanwhile, the wall clock
	// has not.
	turn.confirmed(time.Now().Round(0).Add(-time.Hour))
	if turn.confirmedWithin(time.Minute, time.Time{}) {
		t.Error("a check of before the machine was suspended is trusted")
	}
}
