package runner

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

// Both processes know the holder of the lease and whether it is alive. Each lease has a new epoch.
func TestStandby_LeaseHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// Long enough for a slow machine: a lease that is lost and taken again has a new epoch.
	a := w.runtime(t, func(c *Config) { c.Holder, c.Lease = "a", 10*time.Second }, tally{family: "apple"})
	b := w.runtime(t, func(c *Config) { c.Holder = "b" }, tally{family: "apple"})
	if turn, err := a.LeaseOf(t.Context(), "apples"); err != nil || turn.Holder != "" {
		t.Errorf("before the first lease: %+v, %v", turn, err)
	}
	if epoch, active := a.Active("apples"); epoch != 0 || active {
		t.Errorf("before the first lease: %d, %v", epoch, active)
	}
	stop := run(t, a)
	mustWait(t, a.Waiter(), w.add(t, "apple-1", 1), "apples")
	first, err := b.LeaseOf(t.Context(), "apples")
	epoch, active := a.Active("apples")
	if err != nil || first.Holder != "a" || !active || epoch != first.Epoch {
		t.Fatalf("lease %+v, %v; a is active: %v, in %d", first, err, active, epoch)
	}
	if _, active := b.Active("apples"); active || a.StoppedHere(t.Context(), "apples") {
		t.Error("b is active, or a stopped")
	}
	eventually(t, "the turn is prolonged while its holder lives", func() bool {
		turn, err := b.LeaseOf(t.Context(), "apples")
		if err != nil || turn.Epoch != first.Epoch {
			t.Fatalf("lease %+v, %v", turn, err)
		}
		return turn.Until.After(first.Until)
	})
	stop()
	run(t, b)
	mustWait(t, b.Waiter(), w.add(t, "apple-1", 2), "apples")
	second, err := a.LeaseOf(t.Context(), "apples")
	epoch, active = b.Active("apples")
	if err != nil || second.Holder != "b" || second.Epoch <= first.Epoch || !active || epoch != second.Epoch {
		t.Errorf("lease %+v, %v; b is active: %v, in %d", second, err, active, epoch)
	}
	if _, known := a.Active("pears"); known {
		t.Error("an unknown projection is active")
	}
}

// The target of this process is emptied once for each target of another lease holder. It is not
// emptied for its own lease from before a crash.
func TestStandby_TargetOfAnotherProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.runtime(t, nil, external{tally: tally{family: "apple"}, target: "own"})
	stop := run(t, first)
	mustWait(t, first.Waiter(), w.add(t, "apple-1", 1), "apples")
	stop()
	hold := func(target string) {
		t.Helper()
		w.exec(t, `update apples.checkpoint
			set holder = 'another', until = clock_timestamp() + interval '1 hour', target = $1`, target)
	}
	var reset, looked atomic.Int64
	second := w.runtime(t, func(c *Config) {
		c.LogID = func(context.Context) (uuid.UUID, error) {
			looked.Add(1)
			return w.logID, nil
		}
	}, external{tally: tally{family: "apple"}, target: "own", reset: &reset})
	// look waits for several checks of the lease after a change: one of them has acted on it.
	look := func(want int64) {
		t.Helper()
		until := looked.Load() + 5
		eventually(t, "it checks the lease", func() bool { return looked.Load() >= until })
		if n := reset.Load(); n != want {
			t.Errorf("emptied %d times, want %d", n, want)
		}
	}
	hold("own")
	run(t, second)
	look(0)
	hold("theirs")
	look(1)
	look(1)
	hold("another one")
	look(2)
	// Its next lease rebuilds the target from the whole log.
	w.exec(t, `update apples.checkpoint set until = clock_timestamp()`)
	mustWait(t, second.Waiter(), w.add(t, "apple-1", 2), "apples")
	if n := reset.Load(); n != 3 {
		t.Errorf("emptied %d times", n)
	}
	w.wantTotals(t, "apples", total{"apple-1", 3, 2})
}

// StoppedHere distinguishes a projection that stopped here from one that runs in another process.
func TestStandby_StoppedHere(t *testing.T) {
	w := newWorld(t)
	a := w.runtime(t, nil, tally{family: "apple"})
	run(t, a)
	mustWait(t, a.Waiter(), w.add(t, "apple-1", 1), "apples")
	w.add(t, "apple-1", refusedByApply)
	eventually(t, "it stops", func() bool { return a.StoppedHere(t.Context(), "apples") })
	eventually(t, "it releases its lease", func() (given bool) {
		if err := w.db.QueryRow(t.Context(), `select stopped is not null from apples.checkpoint`).Scan(&given); err != nil {
			t.Fatal(err)
		}
		return given
	})
	if _, active := a.Active("apples"); active {
		t.Error("it stopped and is active")
	}
	w.exec(t,
		`update apples.checkpoint set holder = 'another', stopped = null, until = clock_timestamp() + interval '1 hour'`)
	if a.StoppedHere(t.Context(), "apples") {
		t.Error("it runs in another process, and counts as stopped here")
	}
}

// A page that failed here is no failure of this process once another one has the lease: a process that was
// suspended in a page would never be ready again.
func TestStandby_FailedPageIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.runtime(t, nil, tally{family: "apple", apply: func(context.Context, []eventstore.DecodedEvent) error {
		return projections.Transient(errors.New("database is away"))
	}})
	run(t, a)
	w.add(t, "apple-1", 1)
	eventually(t, "its page fails", func() bool { return status(t, a, "apples").LastErr != nil })
	w.exec(t, `update apples.checkpoint set epoch = epoch + 1, holder = 'another', until = clock_timestamp() + interval '1 hour'`)
	eventually(t, "it stands by without a failure", func() bool {
		s := status(t, a, "apples")
		return !s.Active && s.LastErr == nil && s.Repeat == nil
	})
}
