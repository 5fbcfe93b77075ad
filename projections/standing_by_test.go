package projections

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
)

// Who has the turn is known in both processes, and seen to live; each turn is another.
func TestWhoseTurnItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// Long enough for a slow machine: a turn that is lost and taken again is another.
	a := w.runtime(t, func(c *Config) { c.Holder, c.Lease = "a", 10*time.Second }, tally{family: "apple"})
	b := w.runtime(t, func(c *Config) { c.Holder = "b" }, tally{family: "apple"})
	if turn, err := a.TurnOf(t.Context(), "apples"); err != nil || turn.Holder != "" {
		t.Errorf("before the first turn: %+v, %v", turn, err)
	}
	if epoch, active := a.Active("apples"); epoch != 0 || active {
		t.Errorf("before the first turn: %d, %v", epoch, active)
	}
	stop := run(t, a)
	mustWait(t, a.Waiter(), w.add(t, "apple-1", 1), "apples")
	first, err := b.TurnOf(t.Context(), "apples")
	epoch, active := a.Active("apples")
	if err != nil || first.Holder != "a" || !active || epoch != first.Epoch {
		t.Fatalf("turn %+v, %v; a is active: %v, in %d", first, err, active, epoch)
	}
	if _, active := b.Active("apples"); active || a.StoppedHere(t.Context(), "apples") {
		t.Error("b is active, or a stopped")
	}
	eventually(t, "the turn is prolonged while its holder lives", func() bool {
		turn, err := b.TurnOf(t.Context(), "apples")
		if err != nil || turn.Epoch != first.Epoch {
			t.Fatalf("turn %+v, %v", turn, err)
		}
		return turn.Until.After(first.Until)
	})
	stop()
	run(t, b)
	mustWait(t, b.Waiter(), w.add(t, "apple-1", 2), "apples")
	second, err := a.TurnOf(t.Context(), "apples")
	epoch, active = b.Active("apples")
	if err != nil || second.Holder != "b" || second.Epoch <= first.Epoch || !active || epoch != second.Epoch {
		t.Errorf("turn %+v, %v; b is active: %v, in %d", second, err, active, epoch)
	}
	if _, known := a.Active("pears"); known {
		t.Error("a projection that is not there is active")
	}
}

// What this process keeps outside is emptied while another one keeps its own, once for each; not for its own turn of before a crash,
// nor for a turn at another log.
func TestWhatAnotherProcessKeepsIsEmptied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.runtime(t, nil, tally{family: "apple", target: "own"})
	stop := run(t, first)
	mustWait(t, first.Waiter(), w.add(t, "apple-1", 1), "apples")
	stop()
	hold := func(target, logID string) {
		t.Helper()
		w.exec(t, fmt.Sprintf(`update apples.checkpoint set holder = 'another', until = clock_timestamp() + interval '1 hour', target = $1, log_id = %s`, logID), target)
	}
	var reset, looked atomic.Int64
	second := w.runtime(t, func(c *Config) {
		c.LogID = func(context.Context) (uuid.UUID, error) {
			looked.Add(1)
			return w.logID, nil
		}
	}, tally{family: "apple", target: "own", reset: &reset})
	// Several looks behind a change, one of them has seen it, and done what it does.
	look := func(want int64) {
		t.Helper()
		until := looked.Load() + 5
		eventually(t, "it looks at the turn", func() bool { return looked.Load() >= until })
		if n := reset.Load(); n != want {
			t.Errorf("emptied %d times, want %d", n, want)
		}
	}
	hold("own", "log_id")
	run(t, second)
	look(0)
	hold("theirs", "gen_random_uuid()")
	look(0)
	hold("theirs", "'"+w.logID.String()+"'")
	look(1)
	look(1)
	hold("another one", "log_id")
	look(2)
	// Its next turn builds it anew, with all that is in the log.
	w.exec(t, `update apples.checkpoint set until = clock_timestamp()`)
	mustWait(t, second.Waiter(), w.add(t, "apple-1", 2), "apples")
	if n := reset.Load(); n != 3 {
		t.Errorf("emptied %d times", n)
	}
	w.wantTotals(t, "apples", total{"apple-1", 3, 2})
}

// A projection that stopped here is told from one that goes on elsewhere.
func TestStoppedHere(t *testing.T) {
	w := newWorld(t)
	a := w.runtime(t, nil, tally{family: "apple"})
	run(t, a)
	mustWait(t, a.Waiter(), w.add(t, "apple-1", 1), "apples")
	w.add(t, "apple-1", refusedByApply)
	eventually(t, "it stops", func() bool { return a.StoppedHere(t.Context(), "apples") })
	eventually(t, "it gives its turn back", func() (given bool) {
		if err := w.db.QueryRow(t.Context(), `select stopped is not null from apples.checkpoint`).Scan(&given); err != nil {
			t.Fatal(err)
		}
		return given
	})
	if _, active := a.Active("apples"); active {
		t.Error("it stopped and is active")
	}
	w.exec(t, `update apples.checkpoint set holder = 'another', stopped = null, until = clock_timestamp() + interval '1 hour'`)
	if a.StoppedHere(t.Context(), "apples") {
		t.Error("it goes on elsewhere, and counts as stopped here")
	}
}
