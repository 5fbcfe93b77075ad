package runner

import (
	"context"
	"errors"
	"strings"
	"testing"
)

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
	rt = w.runtime(t, nil, tally{family: "apple"}) // the next process keeps what was left
	run(t, rt)
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	if n := w.schemas(t, "apples"); n != 2 {
		t.Fatalf("%d schemas, want the live one and the interrupted one", n)
	}
	var end RebuildProgress
	keep := func(p RebuildProgress) { end = p }
	if err := rt.Rebuild(t.Context(), "apples", keep); err != nil {
		t.Fatal(err)
	}
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
	rt := w.runtime(t, nil, tally{family: "apple"})
	run(t, rt)
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
	if err := rt.Rebuild(t.Context(), "apples", nil); err != nil {
		t.Fatal(err)
	}
	w.wantTotals(t, "apples", total{"apple-1", 1501, 1501})
}

// Rows that are lost, or too many, stop the switch-over until an operator forces it.
func TestRebuild_CountsDiffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.runtime(t, nil, tally{family: "apple"})
	run(t, rt)
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1, 2), "apples")
	w.exec(t, `insert into apples.totals values ('apple-9', 1, 1)`)
	err := rt.Rebuild(t.Context(), "apples", nil)
	if !errors.Is(err, ErrCounts) || !strings.Contains(err.Error(), "totals has 2 rows and 1 rebuilt") {
		t.Fatalf("rebuilt with %v", err)
	}
	w.wantTotals(t, "apples", total{"apple-1", 3, 2}, total{"apple-9", 1, 1})
	if err := rt.RebuildWith(t.Context(), "apples", RebuildOptions{Force: true}, nil); err != nil {
		t.Fatal(err)
	}
	w.wantTotals(t, "apples", total{"apple-1", 3, 2})
}

// A rebuild with a rate takes at least the time of its events.
func TestRebuild_Rate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.runtime(t, nil, tally{family: "apple"})
	run(t, rt)
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
