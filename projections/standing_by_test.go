package projections

import (
	"testing"
	"time"
)

// Who has the turn is known in both processes, and seen to live; each turn is another.
func TestWhoseTurnItIs(t *testing.T) {
	w := newWorld(t)
	a := w.runtime(t, func(c *Config) { c.Holder, c.Lease = "a", 2*time.Second }, tally{family: "apple"})
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
