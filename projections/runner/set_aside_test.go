package runner

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// setAside records that projections skip an event.
func (w *fixture) setAside(t testing.TB, at eventstore.Position, projections ...string) eventstore.Position {
	t.Helper()
	return w.append(t, stream.Registry, registry.EventSetAside{}.EventType(),
		registry.EventSetAside{Position: uint64(at), Projections: projections})
}

func TestRunner_SetAsideEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.runtime(t, nil, tally{family: "apple"}, tally{family: "pear"})
	run(t, rt)
	other := w.runtime(t, nil, tally{family: "apple"})
	run(t, other)
	w.add(t, "apple-1", 1)
	bad := w.add(t, "apple-1", refusedByApply)
	last := w.add(t, "apple-1", 2)
	// After one process stops and releases its lease, the other one tries. The projection has stopped
	// once both have.
	eventually(t, "both have stopped", func() bool {
		s := status(t, rt, "apples")
		return rt.StoppedHere(t.Context(), "apples") && other.StoppedHere(t.Context(), "apples") && s.Stop != nil &&
			s.Stop.Position == bad
	})
	w.setAside(t, bad, "pears")
	w.setAside(t, bad+1)
	if err := rt.RefreshSetAside(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := status(t, rt, "apples"); s.Stop == nil {
		t.Error("it continues though its event is set aside for another projection only")
	}
	w.setAside(t, bad, "apples")
	eventually(
		t, "neither runner is stopped",
		func() bool { return status(t, rt, "apples").Stop == nil && status(t, other, "apples").Stop == nil },
	)
	mustWait(t, rt.Waiter(), last, "apples")
	mustWait(t, other.Waiter(), w.add(t, "apple-1", 4), "apples")
	w.wantTotals(t, "apples", total{"apple-1", 7, 3})
	// The other process may have continued before this one read the set-aside event.
	if err := rt.RefreshSetAside(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := rt.IsSetAside(); len(all) != 2 || len(all[bad].Projections) != 2 {
		t.Errorf("set aside is %+v", all)
	}
}

// A rebuild skips an event that is set aside later in the log.
func TestRebuild_SetAsideEvent(t *testing.T) {
	w := newWorld(t)
	w.add(t, "apple-1", 1)
	w.setAside(t, w.add(t, "apple-1", refusedByPanic))
	w.setAside(t, w.append(t, "apple-1", "apple.unheard-of.v1", struct{}{}))
	last := w.add(t, "apple-1", 2)
	rt := w.runtime(t, nil, tally{family: "apple"})
	run(t, rt)
	mustWait(t, rt.Waiter(), last, "apples")
	if err := rt.Rebuild(t.Context(), "apples", nil); err != nil {
		t.Fatal(err)
	}
	w.wantTotals(t, "apples", total{"apple-1", 3, 2})
}

// Catch-up reads a long log in large pages. It applies the events before one that cannot be
// applied, and no more.
func TestCatchUp_StopsAtTheEvent(t *testing.T) {
	w := newWorld(t)
	many := func(n int) (last eventstore.Position) {
		t.Helper()
		data, err := json.Marshal(added{N: 1})
		if err != nil {
			t.Fatal(err)
		}
		meta, err := json.Marshal(event.Meta{Schema: event.FirstStep})
		if err != nil {
			t.Fatal(err)
		}
		events := make([]eventstore.Proposed, n)
		for i := range events {
			events[i] = eventstore.Proposed{ID: uuid.New(), Type: added{}.EventType(), Data: data, Meta: meta}
		}
		done, err := w.store.Append(t.Context(), "apple-"+uuid.NewString(), eventstore.NoStream, events)
		if err != nil {
			t.Fatal(err)
		}
		return done.Position
	}
	many(3000)
	bad := w.add(t, "apple-bad", -5)
	last := many(3000)
	rt := w.runtime(t, nil, quick{tally{family: "apple"}})
	run(t, rt)
	eventually(t, "the projector stops", func() bool { return status(t, rt, "apples").Stop != nil })
	if s := status(t, rt, "apples"); s.Stop.Position != bad || s.Stop.Stream != "apple-bad" {
		t.Errorf("stopped at %+v", s.Stop)
	}
	sum := func() (n int64) {
		t.Helper()
		if err := w.db.QueryRow(t.Context(), `select sum(total) from apples.totals`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := sum(); n != 3000 {
		t.Errorf("%d are applied", n)
	}
	w.setAside(t, bad)
	eventually(t, "the projector goes on", func() bool { return status(t, rt, "apples").Stop == nil })
	mustWait(t, rt.Waiter(), last, "apples")
	if n := sum(); n != 6000 {
		t.Errorf("%d are applied", n)
	}
}

// whole is a tally that gets the events that are set aside too, and remembers them.
type whole struct {
	tally
	undecoded chan eventstore.Position
}

func (whole) TakesSetAside() {}

func (p whole) Apply(ctx context.Context, tx pgx.Tx, page []eventstore.DecodedEvent) error {
	for n, f := range page {
		if f.Err != nil {
			p.undecoded <- f.Position
			page = append(slices.Clone(page[:n]), page[n+1:]...)
			return p.Apply(ctx, tx, page)
		}
	}
	return p.tally.Apply(ctx, tx, page)
}

// A projector that takes what is set aside stops at an event that cannot be decoded, and gets it once it is set aside.
func TestRunner_WholeProjector(t *testing.T) {
	w := newWorld(t)
	undecoded := make(chan eventstore.Position, 10)
	w.add(t, "apple-1", 1)
	bad := w.append(t, "apple-1", "apple.unheard-of.v1", struct{}{})
	last := w.add(t, "apple-1", 2)
	rt := w.runtime(t, nil, whole{tally{family: "apple"}, undecoded})
	run(t, rt)
	eventually(t, "it stops", func() bool { return status(t, rt, "apples").Stop != nil })
	if len(undecoded) > 0 {
		t.Error("it got the event before that was set aside")
	}
	w.setAside(t, bad)
	eventually(t, "it goes on", func() bool { return status(t, rt, "apples").Stop == nil })
	mustWait(t, rt.Waiter(), last, "apples")
	if got := <-undecoded; got != bad {
		t.Errorf("it got %d, want %d", got, bad)
	}
	w.wantTotals(t, "apples", total{"apple-1", 3, 2})
}
