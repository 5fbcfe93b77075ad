package runner

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/runtest"
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
	rt := w.start(
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
	rt := w.start(t, nil, tally{family: "apple", apply: func(_ context.Context, page []eventstore.DecodedEvent) error {
		seen.add(len(page))
		if len(seen.all()) < 4 {
			return projections.Transient(errors.New("index is away"))
		}
		return nil
	}})
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
	rt := w.start(
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
	held := newGate()
	lease := func(c *Config) { c.Lease = 5 * time.Second } // even a slow machine renews it in time
	rt := w.start(t, lease, tally{family: "apple", apply: held.hold})
	eventually(t, "the first is active", func() bool { return status(t, rt, "apples").Active })
	other := w.start(t, lease, tally{family: "apple"})
	last := w.add(t, "apple-1", 1)
	receive(t, held.reached, "the first call")
	epoch, _ := rt.Active("apples")
	for range 2 { // as long as two leases
		var until time.Time
		runtest.Must(t, w.db.QueryRow(t.Context(), `select until from apples.checkpoint`).Scan(&until))
		eventually(t, "the lease is over", func() bool {
			var over bool
			runtest.Must(t, w.db.QueryRow(t.Context(), `select clock_timestamp() > $1`, until).Scan(&over))
			return over
		})
	}
	close(held.free)
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
	rt := w.start(
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
	rt := w.start(t, limits, tally{family: "apple", apply: func(context.Context, []eventstore.DecodedEvent) error {
		if !healthy.Load() {
			return projections.Transient(errors.New("index is away"))
		}
		return nil
	}})
	eventually(t, "the first is active", func() bool { return status(t, rt, "apples").Active })
	other := w.start(t, limits, tally{family: "apple"})
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
	rt := w.start(
		t,
		func(c *Config) { c.RepeatLimit = time.Hour },
		tally{family: "apple", apply: func(context.Context, []eventstore.DecodedEvent) error {
			if tries.Add(1) < 10 {
				return projections.Transient(errors.New("index is away"))
			}
			return nil
		}},
	)
	last := w.add(t, "apple-1", 1)
	eventually(t, "it fails", func() bool { return tries.Load() > 2 })
	if err := rt.Waiter().Stopped(t.Context(), "apples"); err != nil {
		t.Errorf("stopped: %v", err)
	}
	mustWait(t, rt.Waiter(), last, "apples")
}

// counted is a tally that counts how often it is asked for its categories.
type counted struct {
	tally
	asked *atomic.Int64
}

func (p counted) Categories() []string {
	p.asked.Add(1)
	return p.tally.Categories()
}

func TestApplyPage_DecidesOnceWhichEventsAreItsOwn(t *testing.T) {
	w := newWorld(t)
	var asked atomic.Int64
	apply := func(_ context.Context, page []eventstore.DecodedEvent) error {
		if len(page) > 2 {
			return errors.New("only two events fit") // so that the page is applied in halves
		}
		return nil
	}
	r := w.runtime(t, nil, counted{tally: tally{family: "apple", apply: apply}, asked: &asked}).runners[0]
	l := takeLease(t, r)
	var events []eventstore.DecodedEvent
	for i := range 24 {
		name := "apple-1"
		if i%3 == 0 {
			name = "pear-1"
		}
		events = append(events, eventstore.DecodedEvent{
			Recorded: eventstore.Recorded{
				Stream: name, Position: eventstore.Position(10 * (i + 1)), Type: "tally.added.v1", ID: uuid.New(),
			},
			Event: &added{N: 1},
		})
	}
	asked.Store(0)
	runtest.Must(t, r.applyPage(t.Context(), l, feed.Page{Next: 240, Events: events}))
	if n := asked.Load(); n != int64(len(events)) {
		t.Errorf("the categories were asked for %d times, want once for each of %d events", n, len(events))
	}
	w.wantTotals(t, "apples", total{"apple-1", 16, 16})
	if _, reached, _ := l.at(); reached != 240 {
		t.Errorf("the lease is at %d, want 240, the end of the page", reached)
	}
}

func TestPart_Cut(t *testing.T) {
	// The projector owns those at 20, 40 and 50.
	var events []eventstore.DecodedEvent
	for n := range 6 {
		at := eventstore.Position(10 * (n + 1))
		events = append(events, eventstore.DecodedEvent{Recorded: eventstore.Recorded{Position: at}})
	}
	at := []int{1, 3, 4}
	whole := part{after: 5, events: events, at: at}
	for _, i := range at {
		whole.own = append(whole.own, events[i])
	}
	for n := range len(at) + 1 {
		first, rest := whole.cut(n)
		for m := range len(rest.own) + 1 { // a rest is cut as the whole is
			middle, end := rest.cut(m)
			var got []eventstore.Position
			after := whole.after
			for _, p := range []part{first, middle, end} {
				if len(p.events) == 0 {
					continue
				}
				if p.after != after {
					t.Errorf("cut(%d) and cut(%d): a part begins after %d, want %d", n, m, p.after, after)
				}
				for i, own := range p.own {
					if is := p.events[p.at[i]-p.from].Position; is != own.Position {
						t.Errorf("cut(%d) and cut(%d): own event %d is at %d, want %d", n, m, i, is, own.Position)
					}
				}
				for _, f := range p.events {
					got = append(got, f.Position)
					after = f.Position
				}
			}
			if len(got) != len(events) || len(first.own) != n || len(middle.own) != m {
				t.Errorf("cut(%d) and cut(%d) have %d events, of them %d and %d own; want %d, %d and %d",
					n, m, len(got), len(first.own), len(middle.own), len(events), n, m)
			}
		}
	}
}

// panicStore panics in its next calls of Head and ReadAll, as often as its counters are set to.
type panicStore struct {
	eventstore.Store
	head, readAll atomic.Int64 // panics left
}

func (s *panicStore) Head(ctx context.Context) (eventstore.Position, error) {
	if s.head.Add(-1) >= 0 {
		panic("head")
	}
	return s.Store.Head(ctx)
}

func (s *panicStore) ReadAll(ctx context.Context, after eventstore.Position, limit int) ([]eventstore.Recorded, error) {
	if s.readAll.Add(-1) >= 0 {
		panic("read all")
	}
	return s.Store.ReadAll(ctx, after, limit)
}

func TestRuntime_PanicOfTheStoreIsSurvived(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	store := &panicStore{Store: w.store}
	w.store = store
	sum := int64(0)
	for range 3 {
		last := w.add(t, "apple-1", ones(700)...) // read by the runner itself
		sum += 700
		store.head.Store(2)
		store.readAll.Store(3)
		rt := w.runtime(t, nil, tally{family: "apple"})
		stop := run(t, rt)
		mustWait(t, rt.Waiter(), last, "apples")
		mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
		sum++
		w.wantTotals(t, "apples", total{"apple-1", sum, sum})
		stop()
	}
}

// cursed panics when it is decoded.
type cursed struct{}

func (cursed) EventType() string           { return "tally.cursed.v1" }
func (*cursed) UnmarshalJSON([]byte) error { panic("cursed") }

func TestRunner_PanicOfADecoderStopsAtTheEvent(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"from the feed": 1, "far behind": 3000} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var err error
			if w.codec, err = eventstore.NewCodec([]domain.Constructor{
				func() event.Event { return new(added) },
				func() event.Event { return new(cursed) },
				func() event.Event { return new(registry.EventSetAside) },
			}); err != nil {
				t.Fatal(err)
			}
			last := w.add(t, "apple-1", ones(before)...)
			bad := w.append(t, "apple-1", "tally.cursed.v1", json.RawMessage(`{}`))
			rt := w.start(t, nil, tally{family: "apple"})
			mustWait(t, rt.Waiter(), last, "apples")
			eventually(t, "it stops", func() bool { return status(t, rt, "apples").Stop != nil })
			stop, is := errors.AsType[*Stop](rt.Waiter().Stopped(t.Context(), "apples"))
			if !is || stop.Position != bad || !strings.Contains(stop.Error(), "panic: a value of type string") {
				t.Errorf("it stopped with %v, want the panic at %d", stop, bad)
			}
		})
	}
}
