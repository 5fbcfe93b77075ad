package runner

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

// continuing is a filled tally of version 2 that goes on with rows of version 1. Its shadow waits at the
// gate before each page.
type continuing struct {
	*filled
	gate *gate
}

func (continuing) Version() int               { return 2 }
func (continuing) Continues(version int) bool { return version == 1 }

func (c continuing) Shadow(ctx context.Context, resume string) (projections.Projector, bool, error) {
	next, resumed, err := c.filled.Shadow(ctx, resume)
	if err != nil {
		return nil, false, err
	}
	return gatedShadow{continuing{next.(*filled), c.gate}}, resumed, nil
}

type gatedShadow struct{ continuing }

func (g gatedShadow) Apply(ctx context.Context, tx pgx.Tx, page []eventstore.DecodedEvent) error {
	if err := g.gate.pass(); err != nil {
		return err
	}
	return g.filled.Apply(ctx, tx, page)
}

// gate holds pages until free is closed, or fails them once broken is. reached is closed by the first.
type gate struct {
	once                  sync.Once
	reached, free, broken chan struct{}
}

func newGate() *gate {
	return &gate{reached: make(chan struct{}), free: make(chan struct{}), broken: make(chan struct{})}
}

func (g *gate) pass() error {
	g.once.Do(func() { close(g.reached) })
	select {
	case <-g.free:
		return nil
	case <-g.broken:
		return context.Canceled
	}
}

// While the rows of a new version are built, the process feeds and reads those of the version before.
// An end in the middle changes nothing. After the switch-over it goes on with the new rows.
func TestUpgrade_OldRowsContinued(t *testing.T) {
	t.Parallel()
	w, in := newWorld(t), &targets{held: map[string]map[eventstore.Position]bool{}}
	before, stop := startFilled(t, w, in)
	mustWait(t, before.Waiter(), w.add(t, "apple-1", 1, 2), "apples")
	stop()
	old := in.live
	start := func(g *gate) (*Runtime, func()) {
		rt := w.runtime(t, nil, continuing{&filled{tally: tally{family: "apple"}, in: in}, g})
		return rt, run(t, rt)
	}
	version := func() (v int) {
		t.Helper()
		if err := w.db.QueryRow(t.Context(), `select version from apples.checkpoint`).Scan(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for round := range 2 {
		g := newGate()
		rt, stop := start(g)
		<-g.reached
		mustWait(t, rt.Waiter(), w.add(t, "apple-1", 3), "apples")
		w.wantTotals(t, "apples", total{"apple-1", int64(6 + 3*round), int64(3 + round)})
		if s := status(t, rt, "apples"); !s.Active || s.LastErr != nil || version() != 1 || in.live != old {
			t.Errorf("round %d: %+v, rows of version %d in %s", round, s, version(), in.live)
		}
		close(g.broken)
		stop()
	}
	g := newGate()
	rt, _ := start(g)
	<-g.reached
	other := w.runtime(t, nil, continuing{&filled{tally: tally{family: "apple"}, in: in}, g})
	run(t, other)
	last := w.add(t, "apple-1", 4)
	mustWait(t, other.Waiter(), last, "apples") // a standby reads the rows, too
	if s := status(t, other, "apples"); s.Active {
		t.Error("the standby is active")
	}
	close(g.free)
	eventually(t, "the new rows are in use", func() bool { return version() == 2 && status(t, rt, "apples").Active })
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 5), "apples")
	w.wantTotals(t, "apples", total{"apple-1", 18, 6})
	if in.live == old || len(in.shadows()) != 0 {
		t.Errorf("%s is in use, shadows %q", in.live, in.shadows())
	}
}
