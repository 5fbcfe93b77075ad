package runner

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
)

func TestLease_OneOfTwoRuntimesIsActive(t *testing.T) {
	w := newWorld(t)
	a := w.runtime(t, nil, tally{family: "apple"})
	b := w.runtime(t, nil, tally{family: "apple"})
	stops := map[*Runtime]func(){a: run(t, a), b: run(t, b)}
	sum := int64(0)
	for n := range 20 {
		last := w.add(t, "apple-1", n%5)
		sum += int64(n % 5)
		mustWait(t, a.Waiter(), last, "apples")
		mustWait(t, b.Waiter(), last, "apples")
		if status(t, a, "apples").Active && status(t, b, "apples").Active {
			t.Fatal("both are active")
		}
	}
	// The active one stops and releases its lease, so the other continues well before the lease is
	// over.
	active, other := a, b
	if status(t, b, "apples").Active {
		active, other = b, a
	}
	stops[active]()
	mustWait(t, other.Waiter(), w.add(t, "apple-1", 1), "apples")
	if !status(t, other, "apples").Active {
		t.Error("the other one did not take over")
	}
	w.wantTotals(t, "apples", total{"apple-1", sum + 1, 21})
}

func TestLease_DeadProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.runtime(t, nil, tally{family: "apple"})
	stop := run(t, first)
	mustWait(t, first.Waiter(), w.add(t, "apple-1", 1), "apples")
	stop()
	var until time.Time
	if err := w.db.QueryRow(t.Context(), `update apples.checkpoint set holder = 'dead', until = clock_timestamp() + interval '700 ms' returning until`).Scan(&until); err != nil {
		t.Fatal(err)
	}
	second := w.runtime(t, nil, tally{family: "apple"})
	run(t, second)
	mustWait(t, second.Waiter(), w.add(t, "apple-1", 2), "apples")
	var now time.Time
	if err := w.db.QueryRow(t.Context(), `select clock_timestamp()`).Scan(&now); err != nil {
		t.Fatal(err)
	}
	if now.Before(until) {
		t.Errorf("taken over %s before the lease was over", until.Sub(now))
	}
	w.wantTotals(t, "apples", total{"apple-1", 3, 2})
}

func TestLease_ProcessWithNameOfDeadOne(t *testing.T) {
	w := newWorld(t)
	named := func(c *Config) { c.Holder = "embedded" }
	first := w.runtime(t, named, tally{family: "apple"})
	stop := run(t, first)
	mustWait(t, first.Waiter(), w.add(t, "apple-1", 1), "apples")
	stop()
	w.exec(t, `update apples.checkpoint set until = clock_timestamp() + interval '1 hour'`)
	second := w.runtime(t, named, tally{family: "apple"})
	run(t, second)
	mustWait(t, second.Waiter(), w.add(t, "apple-1", 2), "apples")
}

// An embedded server stops together with its process.
func TestLease_ServerStops(t *testing.T) {
	w := newWorld(t)
	first := w.runtime(t, nil, tally{family: "apple"})
	stop := run(t, first)
	mustWait(t, first.Waiter(), w.add(t, "apple-1", 1), "apples")
	stop()
	w.exec(t,
		`update apples.checkpoint set until = clock_timestamp() + interval '1 hour', server = server - interval '1 second'`)
	second := w.runtime(t, nil, tally{family: "apple"})
	run(t, second)
	mustWait(t, second.Waiter(), w.add(t, "apple-1", 2), "apples")
}

// A process that counted as dead resumes in the middle of a page.
func TestLease_LostLeaseCommitsNothing(t *testing.T) {
	w := newWorld(t)
	within, resume := make(chan struct{}), make(chan struct{})
	var once sync.Once
	zombie := w.runtime(
		t,
		func(c *Config) { c.Lease = time.Hour },
		tally{family: "apple", apply: func(context.Context, []eventstore.DecodedEvent) error {
			once.Do(func() {
				close(within)
				<-resume
			})
			return nil
		}},
	)
	run(t, zombie)
	last := w.add(t, "apple-1", 1, 2)
	receive(t, within, "the held call")
	w.exec(t, `update apples.checkpoint set until = clock_timestamp()`)
	heir := w.runtime(t, nil, tally{family: "apple"})
	run(t, heir)
	mustWait(t, heir.Waiter(), last, "apples")
	close(resume)
	eventually(t, "the zombie lets go", func() bool { return !status(t, zombie, "apples").Active })
	mustWait(t, zombie.Waiter(), w.add(t, "apple-1", 4), "apples")
	if s := status(t, zombie, "apples"); s.Stop != nil {
		t.Errorf("the zombie stopped: %v", s.Stop)
	}
	w.wantTotals(t, "apples", total{"apple-1", 7, 3})
}

func TestRunner_DatabaseRestoredWhileIdle(t *testing.T) {
	w := newWorld(t)
	rt := w.runtime(t, func(c *Config) { c.Lease = 400 * time.Millisecond }, tally{family: "apple"})
	run(t, rt)
	first := w.add(t, "apple-1", 1)
	mustWait(t, rt.Waiter(), first, "apples")
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 2, 3), "apples")
	w.exec(t,
		`with fallen as (update apples.totals set total = 1, events = 1) update apples.checkpoint set position = $1, last_event_id = null`,
		int64(first))
	eventually(t, "all is applied again", func() bool { return w.totals(t, "apples")[0].Total == 6 })
}

// Waiters of other processes see the checkpoint only.
func TestRunner_PagesWithoutFacts(t *testing.T) {
	w := newWorld(t)
	rt := w.runtime(t, nil, tally{family: "apple"})
	stop := run(t, rt)
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	for n := range 3 {
		mustWait(t, NewWaiter(w.db), w.add(t, "pear-1", n), "apples")
	}
	last := w.add(t, "pear-1", 1)
	mustWait(t, rt.Waiter(), last, "apples")
	stop()
	if at, err := NewWaiter(w.db).Position(t.Context(), "apples"); err != nil || at != last {
		t.Errorf("the checkpoint is left at %d, %v; want %d", at, err, last)
	}
}

// Otherwise two processes take the lease from each other permanently, and neither finishes the
// page.
func TestLease_LongPage(t *testing.T) {
	w := newWorld(t)
	within, resume := make(chan struct{}), make(chan struct{})
	a := w.runtime(t, nil, tally{family: "apple", apply: func(context.Context, []eventstore.DecodedEvent) error {
		close(within)
		<-resume
		return nil
	}})
	run(t, a)
	last := w.add(t, "apple-1", 1)
	receive(t, within, "the held call")
	w.awaitProlonged(t)
	close(resume)
	mustWait(t, a.Waiter(), last, "apples")
}

// An index cannot roll back, so the older lease fails even if the newer one has not moved yet.
func TestLease_OlderLeaseIsStale(t *testing.T) {
	w := newWorld(t)
	runtime := w.runtime(t, nil, tally{family: "apple"})
	r := runtime.runners[0]
	older, err := r.takeLease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer older.end()
	younger, err := r.takeLease(t.Context()) // under the same name, so without waiting
	if err != nil {
		t.Fatal(err)
	}
	defer younger.end()
	page := feed.Page{
		Next: 5,
		Events: []eventstore.DecodedEvent{
			{Recorded: eventstore.Recorded{Stream: "apple-1", Position: 5}, Event: &added{N: 1}},
		},
	}
	if err := r.applyPage(t.Context(), older, page); !errors.Is(err, errStale) {
		t.Errorf("the older lease ended a page with %v", err)
	}
	page.Events[0].Stream = "pear-1"
	if err := errors.Join(r.applyPage(t.Context(), older, page), r.flush(t.Context(), older)); !errors.Is(err, errStale) {
		t.Errorf("the older lease moved the checkpoint: %v", err)
	}
	if _, err := r.table.renew(t.Context(), older.epoch, time.Second); !errors.Is(err, errStale) {
		t.Errorf("the older lease was renewed: %v", err)
	}
	page.Events[0].Stream = "apple-1"
	if err := r.applyPage(t.Context(), younger, page); err != nil {
		t.Errorf("the newer lease: %v", err)
	}
}

func TestLease_IdleRunner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.runtime(t, nil, tally{family: "apple"})
	run(t, a)
	mustWait(t, a.Waiter(), w.add(t, "apple-1", 1), "apples")
	w.awaitProlonged(t)
	w.awaitProlonged(t)
}

// awaitProlonged waits until a process has renewed the lease.
func (w *fixture) awaitProlonged(t *testing.T) {
	t.Helper()
	var before int64
	if err := w.db.QueryRow(t.Context(), `select extract(epoch from until)::bigint from apples.checkpoint`).Scan(&before); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the turn is prolonged", func() bool {
		var later bool
		if err := w.db.QueryRow(t.Context(), `select extract(epoch from until)::bigint > $1 from apples.checkpoint`, before).Scan(&later); err != nil {
			t.Fatal(err)
		}
		return later
	})
}
