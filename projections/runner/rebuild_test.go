package runner

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/ownership"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections"
)

// schemas are the schemas of a projection, live and other.
func (w *fixture) schemas(t testing.TB, name string) int {
	t.Helper()
	var n int
	runtest.Must(t, w.db.QueryRow(t.Context(),
		`select count(*) from pg_namespace where nspname like $1 || '%'`, name).Scan(&n))
	return n
}

func (w *fixture) wantSchemas(t testing.TB, name string, want int) {
	t.Helper()
	if n := w.schemas(t, name); n != want {
		t.Fatalf("%d schemas of %s, want %d", n, name, want)
	}
}

// wantNoRebuild checks that a rebuild is refused, and with what words.
func wantNoRebuild(t testing.TB, rt *Runtime, says string) {
	t.Helper()
	if err := rt.Rebuild(limited(t), "apples", nil); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("a rebuild ends with %v, want %q", err, says)
	}
}

func TestRebuild_ReplacesRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.start(t, nil, tally{family: "apple"}, tally{family: "pear"})
	for range 3 {
		w.add(t, "pear-1", 1)
		mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1, 2), "apples", "pears")
	}
	w.exec(t, `update apples.totals set total = 1000`)
	var last RebuildProgress
	runtest.Must(t, rt.Rebuild(t.Context(), "apples", func(p RebuildProgress) { last = p }))
	w.wantTotals(t, "apples", total{"apple-1", 9, 6})
	if last.Events != 9 || !last.Done || last.Position != last.Head {
		t.Errorf("progress %+v", last)
	}
	// The live projector continues, and so do its waiters.
	mustWait(t, rt.Waiter(), w.add(t, "apple-2", 5), "apples")
	w.wantTotals(t, "apples", total{"apple-1", 9, 6}, total{"apple-2", 5, 1})
	w.wantSchemas(t, "apples", 1)
	if s := status(t, rt, "apples"); s.Stop != nil || s.LastErr != nil {
		t.Errorf("status %+v", s)
	}
}

// Writers and readers continue during the rebuild. Every returned position stays covered after
// every switch.
func TestRebuild_UnderLoad(t *testing.T) {
	t.Parallel()
	for _, both := range []bool{false, true} {
		w := newWorld(t)
		rt := w.start(t, nil, quick{tally{family: "apple"}})
		if both {
			w.start(t, nil, quick{tally{family: "apple"}}) // either may have the lease
		}
		for range 1499 {
			w.add(t, "apple-0", 1)
		}
		mustWait(t, rt.Waiter(), w.add(t, "apple-0", 1), "apples") // the first build refuses a second one
		ctx, cancel := context.WithCancel(t.Context())
		var busy sync.WaitGroup
		var written atomic.Int64
		busy.Go(func() {
			own := &fixture{store: w.store, next: map[string]eventstore.Revision{}}
			for ctx.Err() == nil {
				mustWait(t, rt.Waiter(), own.add(t, "apple-1", 1), "apples")
				n := written.Add(1)
				var seen int64
				if err := w.db.QueryRow(t.Context(), `select total from apples.totals where stream = 'apple-1'`).Scan(&seen); err != nil || seen < n {
					t.Errorf("%d events are answered for, and %d are there: %v", n, seen, err)
					return
				}
			}
		})
		for range 4 {
			if err := rt.Rebuild(t.Context(), "apples", nil); err != nil {
				t.Error(err)
			}
		}
		cancel()
		busy.Wait()
		w.exec(t, `update apples.totals set events = 0`) // it counts pages here
		w.wantTotals(t, "apples", total{"apple-0", 1500, 0}, total{"apple-1", written.Load(), 0})
	}
}

// A page of the live projector during the switch has written into replaced tables, and is repeated.
func TestRebuild_PageDuringSwitch(t *testing.T) {
	w := newWorld(t)
	within, resume := make(chan struct{}), make(chan struct{})
	var hold atomic.Bool
	rt := w.start(t, nil, tally{family: "apple", apply: func(context.Context, []eventstore.DecodedEvent) error {
		if hold.CompareAndSwap(true, false) {
			close(within)
			<-resume
		}
		return nil
	}})
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	hold.Store(true)
	last := w.add(t, "apple-1", 4)
	receive(t, within, "the held call")
	if err := rt.Rebuild(t.Context(), "apples", nil); err != nil {
		t.Error(err)
	}
	close(resume)
	mustWait(t, rt.Waiter(), last, "apples")
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 2), "apples")
	w.wantTotals(t, "apples", total{"apple-1", 7, 3})
}

func TestRebuild_SecondRebuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	within, resume := make(chan struct{}), make(chan struct{})
	var hold atomic.Bool
	slow := tally{family: "apple", apply: func(context.Context, []eventstore.DecodedEvent) error {
		if hold.CompareAndSwap(true, false) {
			close(within)
			<-resume
		}
		return nil
	}}
	a, b := w.runtime(t, nil, slow), w.runtime(t, nil, slow)
	run(t, a)
	mustWait(t, a.Waiter(), w.add(t, "apple-1", 1), "apples")
	hold.Store(true)
	done := make(chan error, 1)
	go func() { done <- a.Rebuild(context.WithoutCancel(t.Context()), "apples", nil) }()
	receive(t, within, "the held call")
	for who, rt := range map[string]*Runtime{"the same process": a, "another process": b} {
		wantError(t, "second rebuild by "+who, rt.Rebuild(t.Context(), "apples", nil), ErrRebuilding)
	}
	close(resume)
	if err := <-done; err != nil {
		t.Error(err)
	}
	wantError(t, "a projection that is none", a.Rebuild(t.Context(), "plums", nil), ErrUnknownProjection)
}

// A check for leftovers runs every few seconds. A rebuild that meets one waits for it.
func TestRebuild_DuringCheckForLeftovers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.start(t, nil, tally{family: "apple"})
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	shadow := rt.runners[0].shadow
	runtest.Must(t, shadow.lock(t.Context()))
	ended, end := context.WithCancel(t.Context())
	end()
	wantError(t, "a rebuild that waits until its context ends", rt.Rebuild(ended, "apples", nil), context.Canceled)
	done := make(chan error, 1)
	go func() { done <- rt.Rebuild(t.Context(), "apples", nil) }()
	runtest.Await(t, "rebuild waits", func() bool { return rt.runners[0].rebuilding.Load() })
	shadow.unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// As after a crash: the next process removes the leftovers, once no process uses them.
func TestRebuild_LeftoversOfACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.once(t, nil, tally{family: "apple"})
	b, err := first.runners[0].startShadow(t.Context(), RebuildOptions{})
	runtest.Must(t, err)
	b.lease.end()
	receive(t, b.maintained, "the held call")
	b.next.db.Close()
	w.exec(t, `create schema apples_old_7`)
	w.exec(t, ownership.MarkStatement("apples_old_7", w.logID))
	w.exec(t, `create table apples_old_7.totals (n int)`)
	w.exec(t, `update apples_next.checkpoint set until = clock_timestamp() + interval '1 hour'`)
	w.once(t, nil, tally{family: "apple"})
	w.wantSchemas(t, "apples", 2) // another process rebuilds
	w.exec(t, `update apples_next.checkpoint set until = clock_timestamp()`)
	third := w.start(t, nil, tally{family: "apple"})
	mustWait(t, third.Waiter(), w.add(t, "apple-1", 1), "apples")
	eventually(t, "the rest is removed", func() bool { return w.schemas(t, "apples") == 1 })
}

func TestRebuild_WithoutRunningRuntime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	last := w.add(t, "apple-1", 1, 2)
	rt := w.runtime(t, nil, tally{family: "apple"})
	for range 2 { // the first one creates the tables
		runtest.Must(t, rt.Rebuild(t.Context(), "apples", nil))
		w.wantTotals(t, "apples", total{"apple-1", 3, 2})
	}
	run(t, rt)
	mustWait(t, rt.Waiter(), last, "apples")
}

// An event that cannot be applied ends a rebuild, and the live rows stay.
func TestRebuild_EventThatCannotBeApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.start(t, nil, tally{family: "apple"})
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1, 2), "apples")
	w.exec(t, `alter table apples.totals drop constraint totals_total_check`)
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", refusedByDatabase), "apples")
	err := rt.Rebuild(t.Context(), "apples", nil)
	if stop, ok := errors.AsType[*Stop](err); !ok || stop.Stream != "apple-1" {
		t.Errorf("rebuild ended with %v", err)
	}
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 4), "apples")
	w.wantTotals(t, "apples", total{"apple-1", 7 - 1000000, 4})
}

func TestRebuild_NewVersionInTheShadow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.start(t, nil, tally{family: "apple"})
	mustWait(t, before.Waiter(), w.add(t, "apple-1", 1, 2), "apples")
	held := newGate()
	after := w.start(t, nil, tally{family: "apple", version: 2, apply: held.hold})
	receive(t, held.reached, "the held call")
	// The older process continues. The newer one returns nothing from rows of the older version, and
	// reports the reason.
	last := w.add(t, "apple-1", 3)
	mustWait(t, before.Waiter(), last, "apples")
	w.wantTotals(t, "apples", total{"apple-1", 6, 3})
	eventually(t, "the newer process reports why it waits", func() bool {
		_, outdated := errors.AsType[*outdatedError](status(t, after, "apples").LastErr)
		return outdated
	})
	if at, err := after.Waiter().Position(t.Context(), "apples"); at != 0 || err != nil {
		t.Errorf("the newer process answers from position %d: %v", at, err)
	}
	close(held.free)
	mustWait(t, after.Waiter(), last, "apples")
	eventually(t, "the older process stops", func() bool { return status(t, before, "apples").Stop != nil })
	mustWait(t, after.Waiter(), w.add(t, "apple-1", 4), "apples")
	w.wantTotals(t, "apples", total{"apple-1", 10, 4})
}

// A transaction that reads the old tables keeps them after the switch. They are dropped when it
// ends.
func TestRebuild_OldRowsInUse(t *testing.T) {
	w := newWorld(t)
	rt := w.start(t, nil, tally{family: "apple"})
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1, 2), "apples")
	tx, err := w.db.Begin(t.Context())
	runtest.Must(t, err)
	var sum int64
	runtest.Must(t, tx.QueryRow(t.Context(), `select total from apples.totals`).Scan(&sum))
	done := make(chan error, 1)
	go func() { done <- rt.Rebuild(context.WithoutCancel(t.Context()), "apples", nil) }()
	last := w.add(t, "apple-1", 3)
	eventually(t, "the new rows are in use", func() bool {
		var n int
		runtest.Must(t, w.db.QueryRow(t.Context(),
			`select count(*) from pg_namespace where nspname like 'apples_old_%'`).Scan(&n))
		return n == 1
	})
	mustWait(t, rt.Waiter(), last, "apples")
	runtest.Must(t, tx.Commit(t.Context()))
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-limited(t).Done():
		t.Fatal("the rebuild does not end")
	}
	w.wantSchemas(t, "apples", 1)
	w.wantTotals(t, "apples", total{"apple-1", 6, 3})
}

// killedRebuild leaves the shadow of a process that was killed a moment ago, with a row in it.
func (w *fixture) killedRebuild(t *testing.T, p projections.Projector) {
	t.Helper()
	shadow := newCheckpoints(w.db, p.Name()+shadowSuffix)
	live, err := newCheckpoints(w.db, p.Name()).read(t.Context())
	runtest.Must(t, err)
	if err := pgx.BeginFunc(t.Context(), w.db, func(tx pgx.Tx) error {
		if _, err := shadow.create(t.Context(), tx, p, 0, live.logID); err != nil {
			return err
		}
		_, err := shadow.takeLease(t.Context(), tx, "killed", time.Hour)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A vacuum retains the shadow of a killed process until its lease is over, and then drops it.
func TestVacuum_RebuildOfAKilledProcess(t *testing.T) {
	for name, hooked := range map[string]bool{"of this process's projection": true, "of a projection that this process does not run": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			apples := tally{family: "apple"}
			rt := w.start(t, nil, apples)
			mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
			w.killedRebuild(t, apples)
			v := Vacuum{DB: w.db, LogID: w.id}
			if hooked {
				v.Leftovers = rt.DropLeftovers
			}
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := v.Vacuum(short); err == nil {
				t.Fatal("vacuumed within the lease of a rebuild")
			}
			w.wantSchemas(t, "apples", 2) // that of a rebuild that may be at work is among them
			w.exec(t, `update apples_next.checkpoint set until = clock_timestamp()`)
			if _, err := v.Vacuum(t.Context()); err != nil {
				t.Fatalf("after the lease: %v", err)
			}
			w.wantSchemas(t, "apples", 1)
		})
	}
}

// The shadow of a rebuild in progress is not a leftover, even if its lease is over.
func TestDropLeftovers_RebuildAtWork(t *testing.T) {
	w := newWorld(t)
	rt := w.start(t, nil, tally{family: "apple"})
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	built := false
	if err := rt.Rebuild(t.Context(), "apples", func(p RebuildProgress) {
		if built || p.Done {
			return
		}
		built = true
		if err := rt.DropLeftovers(t.Context()); err != nil {
			t.Error(err)
		}
		if n := w.schemas(t, "apples"); n != 2 {
			t.Errorf("%d schemas during a rebuild", n)
		}
		at, err := Rebuilds(t.Context(), rt.db, w.id)
		if err != nil || len(at) != 1 || at[0].Projection != "apples" || !at[0].IsRunning {
			t.Errorf("the rebuilds are %+v, %v", at, err)
		}
	}); err != nil || !built {
		t.Fatalf("rebuilt %t, %v", built, err)
	}
	w.wantTotals(t, "apples", total{"apple-1", 1, 1})
}

// A process that starts while the lease of a killed rebuild lasts drops its shadow later, by
// itself.
func TestRuntime_DropsLeftoversAfterTheirLease(t *testing.T) {
	w := newWorld(t)
	apples := tally{family: "apple"}
	w.once(t, nil, apples)
	w.killedRebuild(t, apples)
	next := w.start(t, nil, apples)
	mustWait(t, next.Waiter(), w.add(t, "apple-1", 1), "apples")
	w.wantSchemas(t, "apples", 2)
	w.exec(t, `update apples_next.checkpoint set until = clock_timestamp()`)
	eventually(t, "the shadow is dropped", func() bool { return w.schemas(t, "apples") == 1 })
}

// An interrupted rebuild is continued where it stopped, by another process too. With Restart, or once a
// round of erasure has dropped what it left, it begins at position 0.
func TestRebuild_ContinuesAfterAnInterruption(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.runtime(t, nil, tally{family: "apple"})
	stop := run(t, rt)
	const events = 6000 // more than one page of a rebuild
	for range events - 2 {
		w.add(t, "apple-1", 1)
	}
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	interrupt := func(options RebuildOptions) (last RebuildProgress) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		err := rt.RebuildWith(ctx, "apples", options, func(p RebuildProgress) { last = p; cancel() })
		if !errors.Is(err, context.Canceled) || last.Position == 0 || last.Position == last.Head {
			t.Fatalf("interrupted at %+v with %v", last, err)
		}
		if last.LeftSeconds == 0 {
			t.Errorf("no estimate in %+v", last)
		}
		return last
	}
	at := interrupt(RebuildOptions{})
	stop()
	rt = w.start(t, nil, tally{family: "apple"}) // the next process keeps what was left
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	w.wantSchemas(t, "apples", 2)
	var end RebuildProgress
	keep := func(p RebuildProgress) { end = p }
	runtest.Must(t, rt.Rebuild(t.Context(), "apples", keep))
	if end.Resumed != at.Position || end.Events != events-at.Events || !end.Compared || !end.Done {
		t.Errorf("interrupted at %+v, ended with %+v", at, end)
	}
	w.wantTotals(t, "apples", total{"apple-1", events, events})

	interrupt(RebuildOptions{})
	if err := rt.RebuildWith(t.Context(), "apples", RebuildOptions{Restart: true}, keep); err != nil || end.Events != events {
		t.Errorf("with restart it ended with %+v, %v", end, err)
	}
	interrupt(RebuildOptions{})
	if err := rt.DropLeftovers(t.Context()); err != nil || w.schemas(t, "apples") != 1 {
		t.Errorf("after a round of erasure %d schemas are left, %v", w.schemas(t, "apples"), err)
	}
	interrupt(RebuildOptions{})
	w.exec(t, `update apples_next.checkpoint set until = clock_timestamp() - interval '25 hours'`)
	eventually(t, "what nobody continues is dropped", func() bool { return w.schemas(t, "apples") == 1 })
}

// An event that was set aside after an interrupted rebuild had applied it is not in the rebuilt rows.
func TestRebuild_SetAsideAfterAnInterruption(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.start(t, nil, tally{family: "apple"})
	first := w.add(t, "apple-1", 5)
	for range 1500 {
		w.add(t, "apple-1", 1)
	}
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	ctx, cancel := context.WithCancel(t.Context())
	if err := rt.Rebuild(ctx, "apples", func(RebuildProgress) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	w.setAside(t, first)
	runtest.Must(t, rt.Rebuild(t.Context(), "apples", nil))
	w.wantTotals(t, "apples", total{"apple-1", 1501, 1501})
}

// Rows that are lost, or too many, stop the switch-over until an operator forces it.
func TestRebuild_CountsDiffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.start(t, nil, tally{family: "apple"})
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1, 2), "apples")
	w.exec(t, `insert into apples.totals values ('apple-9', 1, 1)`)
	err := rt.Rebuild(t.Context(), "apples", nil)
	if !errors.Is(err, ErrCounts) || !strings.Contains(err.Error(), "totals has 2 rows and 1 rebuilt") {
		t.Fatalf("rebuilt with %v", err)
	}
	w.wantTotals(t, "apples", total{"apple-1", 3, 2}, total{"apple-9", 1, 1})
	runtest.Must(t, rt.RebuildWith(t.Context(), "apples", RebuildOptions{Force: true}, nil))
	w.wantTotals(t, "apples", total{"apple-1", 3, 2})
}

// A rebuild with a rate takes at least the time of its events.
func TestRebuild_Rate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.start(t, nil, tally{family: "apple"})
	for range 99 {
		w.add(t, "apple-1", 1)
	}
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	var last RebuildProgress
	err := rt.RebuildWith(t.Context(), "apples", RebuildOptions{Rate: 200}, func(p RebuildProgress) { last = p })
	if least := 0.5; err != nil || last.Seconds < least {
		t.Errorf("%d events took %f s, want at least %f: %v", last.Events, last.Seconds, least, err)
	}
}
