package runner

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

// sizes records how many events each try of a page had.
type sizes struct {
	mu    sync.Mutex
	tries []int
}

func (s *sizes) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries = append(s.tries, n)
}

func (s *sizes) all() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.tries...)
}

func ones(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = 1
	}
	return list
}

func TestRunner_PageOverItsLimitIsHalved(t *testing.T) {
	const fits = 3
	w := newWorld(t)
	var seen sizes
	var late atomic.Int64
	last := w.add(t, "apple-1", ones(50)...)
	rt := w.runtime(
		t,
		func(c *Config) { c.PageLimit = 100 * time.Millisecond },
		tally{family: "apple", apply: func(ctx context.Context, page []eventstore.DecodedEvent) error {
			seen.add(len(page))
			if len(page) > fits {
				<-ctx.Done()
				late.Add(1)
				return ctx.Err()
			}
			return nil
		}},
	)
	run(t, rt)
	mustWait(t, rt.Waiter(), last, "apples")
	w.wantTotals(t, "apples", total{"apple-1", 50, 50})
	// 50, 25, 12, 6: the smaller size holds for the rest of the page and for later pages, until they
	// are quick.
	if n := late.Load(); n > 8 {
		t.Errorf("%d pages passed their limit: %v", n, seen.all())
	}
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", ones(10)...), "apples")
	w.wantTotals(t, "apples", total{"apple-1", 60, 60})
}

func TestRunner_PageThatFailsWithinItsLimitIsNotHalved(t *testing.T) {
	w := newWorld(t)
	var seen sizes
	last := w.add(t, "apple-1", ones(50)...)
	rt := w.runtime(t, nil, tally{family: "apple", apply: func(_ context.Context, page []eventstore.DecodedEvent) error {
		seen.add(len(page))
		if len(seen.all()) < 4 {
			return projections.Transient(errors.New("index is away"))
		}
		return nil
	}})
	run(t, rt)
	mustWait(t, rt.Waiter(), last, "apples")
	w.wantTotals(t, "apples", total{"apple-1", 50, 50})
	for _, n := range seen.all() {
		if n != 50 {
			t.Errorf("tries had %v events, want 50 each", seen.all())
			break
		}
	}
}

func TestRunner_SingleEventOverItsLimitGetsMoreTime(t *testing.T) {
	t.Parallel()
	const needs = 700 * time.Millisecond
	w := newWorld(t)
	var tries atomic.Int64
	last := w.add(t, "apple-1", 1, 1, 7, 1, 1)
	rt := w.runtime(
		t,
		func(c *Config) { c.PageLimit = 100 * time.Millisecond },
		tally{family: "apple", apply: func(ctx context.Context, page []eventstore.DecodedEvent) error {
			for _, f := range page {
				deadline, _ := ctx.Deadline()
				if f.Event.(*added).N != 7 || time.Until(deadline) > needs {
					continue
				}
				if len(page) == 1 {
					tries.Add(1)
				}
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}},
	)
	run(t, rt)
	mustWait(t, rt.Waiter(), last, "apples")
	w.wantTotals(t, "apples", total{"apple-1", 11, 5})
	// It needs a limit of 800 ms: 100, 200 and 400 pass before that. On a busy machine some of them
	// pass before the projector is called.
	if tries.Load() == 0 {
		t.Error("the event was never tried with too short a limit")
	}
}

func TestBounds_LimitOfASingleEvent(t *testing.T) {
	b := bounds{page: time.Second, event: 5 * time.Second}
	one, other := []eventstore.DecodedEvent{{Recorded: eventstore.Recorded{Position: 7}}}, []eventstore.DecodedEvent{
		{Recorded: eventstore.Recorded{Position: 9}},
	}
	for _, want := range []time.Duration{1, 2, 4, 5, 5} {
		if got := b.limit(one); got != want*time.Second {
			t.Errorf("limit is %s, want %s", got, want*time.Second)
		}
		if got := b.limit(other); got != time.Second {
			t.Errorf("limit of another event is %s", got)
		}
		b.exceeded(one)
	}
	b.applied(one, time.Second)
	if got := b.limit(one); got != time.Second || b.slow != 0 {
		t.Errorf("limit is %s once the event passed", got)
	}
}

func TestBounds_PagesGrowAfterQuickOnes(t *testing.T) {
	b := bounds{page: 8 * time.Second, event: time.Hour}
	facts := make([]eventstore.DecodedEvent, 100)
	b.exceeded(facts)
	if b.maxOwn != 50 {
		t.Fatalf("a page takes %d events, want 50", b.maxOwn)
	}
	for range quickPages - 1 {
		b.applied(facts[:50], time.Millisecond)
	}
	b.applied(facts[:50], time.Second) // not quick
	b.applied(facts[:49], time.Millisecond)
	if b.maxOwn != 50 {
		t.Errorf("a page takes %d events after %d quick ones, want 50", b.maxOwn, quickPages-1)
	}
	if b.applied(facts[:50], time.Millisecond); b.maxOwn != 100 {
		t.Errorf("a page takes %d events after %d quick ones, want 100", b.maxOwn, quickPages)
	}
}

func TestRunner_LongEventKeepsItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	lease := func(c *Config) { c.Lease = 5 * time.Second } // even a slow machine renews it in time
	rt := w.runtime(t, lease, tally{family: "apple", apply: func(context.Context, []eventstore.DecodedEvent) error {
		once.Do(func() { close(began) })
		<-release
		return nil
	}})
	run(t, rt)
	eventually(t, "the first is active", func() bool { return status(t, rt, "apples").Active })
	other := w.runtime(t, lease, tally{family: "apple"})
	run(t, other)
	last := w.add(t, "apple-1", 1)
	receive(t, began, "the first call")
	epoch, _ := rt.Active("apples")
	for range 2 { // as long as two leases
		var until time.Time
		if err := w.db.QueryRow(t.Context(), `select until from apples.checkpoint`).Scan(&until); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the lease is over", func() bool {
			var over bool
			if err := w.db.QueryRow(t.Context(), `select clock_timestamp() > $1`, until).Scan(&over); err != nil {
				t.Fatal(err)
			}
			return over
		})
	}
	close(release)
	mustWait(t, rt.Waiter(), last, "apples")
	if now, active := rt.Active("apples"); now != epoch || !active {
		t.Errorf("the lease is %d (active %t), want %d", now, active, epoch)
	}
	if _, active := other.Active("apples"); active {
		t.Error("another process took over")
	}
	w.wantTotals(t, "apples", total{"apple-1", 1, 1})
}

// The limit of the second try is an hour: only the end of the process ends it.
func TestRunner_StopEndsALongEvent(t *testing.T) {
	w := newWorld(t)
	var tries atomic.Int64
	second := make(chan struct{})
	rt := w.runtime(
		t,
		func(c *Config) { c.PageLimit = 50 * time.Millisecond },
		tally{family: "apple", apply: func(ctx context.Context, _ []eventstore.DecodedEvent) error {
			if tries.Add(1) == 2 {
				close(second)
			}
			<-ctx.Done()
			return ctx.Err()
		}},
	)
	rt.runners[0].bounds.slow, rt.runners[0].bounds.slowLimit = w.add(t, "apple-1", 1), time.Hour
	stop := run(t, rt)
	eventually(t, "the event is at work", func() bool { return tries.Load() == 1 })
	stop()
	if s := status(t, rt, "apples"); s.Stop != nil {
		t.Errorf("it stopped: %v", s.Stop)
	}
}

// weighed is a tally whose pages may add up to ten.
type weighed struct{ tally }

func (weighed) Fit(facts []eventstore.DecodedEvent) int {
	sum := 0
	for i, f := range facts {
		if sum += f.Event.(*added).N; sum > 10 {
			return i // 0 for an event that is over the bound by itself
		}
	}
	return len(facts)
}

func TestRunner_PageIsCutByCost(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	var pages [][]int
	w.add(t, "pear-1", 1)
	last := w.add(t, "apple-1", 5, 5, 1, 9, 30, 2, 11)
	rt := w.runtime(
		t,
		nil,
		weighed{tally{family: "apple", apply: func(_ context.Context, page []eventstore.DecodedEvent) error {
			var numbers []int
			for _, f := range page {
				numbers = append(numbers, f.Event.(*added).N)
			}
			mu.Lock()
			defer mu.Unlock()
			pages = append(pages, numbers)
			return nil
		}}},
	)
	run(t, rt)
	mustWait(t, rt.Waiter(), last, "apples")
	w.wantTotals(t, "apples", total{"apple-1", 63, 7})
	mu.Lock()
	defer mu.Unlock()
	for _, page := range pages {
		sum := 0
		for _, n := range page {
			sum += n
		}
		if sum > 10 && len(page) > 1 {
			t.Errorf("a page has %v", page)
		}
	}
	if len(pages) != 5 {
		t.Errorf("pages are %v, want 5", pages)
	}
}

func TestRunner_RepeatedPageCountsAsStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var healthy atomic.Bool
	limits := func(c *Config) { c.RepeatLimit, c.Lease = 300*time.Millisecond, 5*time.Second }
	rt := w.runtime(t, limits, tally{family: "apple", apply: func(context.Context, []eventstore.DecodedEvent) error {
		if !healthy.Load() {
			return projections.Transient(errors.New("index is away"))
		}
		return nil
	}})
	run(t, rt)
	eventually(t, "the first is active", func() bool { return status(t, rt, "apples").Active })
	other := w.runtime(t, limits, tally{family: "apple"})
	run(t, other)
	readers := NewWaiter(w.db) // of a process without projections
	readers.repeatLimit = 300 * time.Millisecond
	last := w.add(t, "apple-1", 1, 2)
	for name, waiter := range map[string]*Waiter{"active": rt.Waiter(), "standby": other.Waiter(), "reader": readers} {
		eventually(t, name+" counts it as stopped", func() bool {
			repeat, is := errors.AsType[*Repeat](waiter.Stopped(t.Context(), "apples"))
			return is && repeat.After < repeat.Next && repeat.Next <= last && repeat.Tries > 0 &&
				time.Since(repeat.Since) >= 300*time.Millisecond
		})
		err := waiter.Wait(limited(t), last, "apples")
		if refused, is := errors.AsType[*fault.Error](err); !is || refused.Kind != fault.Unavailable {
			t.Errorf("%s waits: %v", name, err)
		}
	}
	if s := status(t, rt, "apples"); s.Repeat == nil || s.Stop != nil {
		t.Errorf("status %+v, want a repeated page", s)
	}
	healthy.Store(true)
	eventually(t, "it recovers", func() bool { return readers.Stopped(t.Context(), "apples") == nil })
	mustWait(t, readers, last, "apples")
	for name, waiter := range map[string]*Waiter{"active": rt.Waiter(), "standby": other.Waiter(), "reader": readers} {
		eventually(t, name+" counts it as running", func() bool { return waiter.Stopped(t.Context(), "apples") == nil })
	}
	if s := status(t, rt, "apples"); s.Repeat != nil || s.LastErr != nil {
		t.Errorf("status %+v, want none of the failure", s)
	}
}

func TestRunner_PageThatFailsForAMomentCountsAsRunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var tries atomic.Int64
	rt := w.runtime(
		t,
		func(c *Config) { c.RepeatLimit = time.Hour },
		tally{family: "apple", apply: func(context.Context, []eventstore.DecodedEvent) error {
			if tries.Add(1) < 10 {
				return projections.Transient(errors.New("index is away"))
			}
			return nil
		}},
	)
	run(t, rt)
	last := w.add(t, "apple-1", 1)
	eventually(t, "it fails", func() bool { return tries.Load() > 2 })
	if err := rt.Waiter().Stopped(t.Context(), "apples"); err != nil {
		t.Errorf("stopped: %v", err)
	}
	mustWait(t, rt.Waiter(), last, "apples")
}
