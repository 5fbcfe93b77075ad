package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/datapoints"
)

// counted is a queue with a number of items in each lane.
type counted map[work.Lane]int

func (c counted) Lease(_ context.Context, r work.LeaseRequest) ([]work.Item, uuid.UUID, error) {
	items := make([]work.Item, min(c[r.Lane], r.Limit))
	for n := range items {
		items[n] = work.Item{Lane: r.Lane, DataPoint: uuid.New()}
	}
	c[r.Lane] -= len(items)
	return items, uuid.Nil, nil
}

func (counted) Extend(context.Context, string, []uuid.UUID, time.Time) error { return nil }
func (counted) Release(context.Context, string, []uuid.UUID) error           { return nil }

// newLanes is a worker on a queue. Its pace is closed if closed is set.
func newLanes(queue counted, closed bool) *Worker {
	clock := at
	now := func() time.Time { return clock }
	quiet := slog.New(slog.DiscardHandler)
	w := &Worker{Queue: queue, Logger: quiet, Now: now}
	w.Pace = engine.NewBatchPace(stalled{projection.DataPoints: 1 << 40}, quiet, now)
	if closed {
		w.Pace.Live()
		w.Pace.Appended(1, 1<<20)
		clock = clock.Add(time.Second)
	}
	return w
}

func TestWorker_Paused(t *testing.T) {
	paused := true
	w := newLanes(counted{work.LaneLive: 1}, false)
	w.Paused = func() bool { return paused }
	if items := w.leaseRound(t.Context()); len(items) != 0 {
		t.Errorf("%d items are leased meanwhile", len(items))
	}
	paused = false
	if items := w.leaseRound(t.Context()); len(items) != 1 {
		t.Errorf("%d items are leased after it, want 1", len(items))
	}
}

func inLanes(items []work.Item) (live, bulk int, liveFirst bool) {
	liveFirst = true
	for _, i := range items {
		if i.Lane == work.LaneBulk {
			bulk++
			continue
		}
		live++
		liveFirst = liveFirst && bulk == 0
	}
	return live, bulk, liveFirst
}

// Live items come first and fill a round up to the share of batches, which get at least a quarter of the
// items of each round while they have any, and all that live items leave.
func TestWorker_SharesOfALane(t *testing.T) {
	const all, quarter = leaseSize, leaseSize / 4
	for _, c := range []struct {
		name               string
		live, bulk         int
		closed             bool
		wantLive, wantBulk int
	}{
		{"a flood of single sends", 10 * all, 10 * all, false, all - quarter, quarter},
		{"a flood of single sends, and projections lag", 10 * all, 10 * all, true, all - quarter, quarter},
		{"a flood of single sends, few items of batches", 10 * all, 5, false, all - 5, 5},
		{"no batches", 10 * all, 0, false, all, 0},
		{"few single sends", 3, 10 * all, false, 3, all - 3},
		{"few single sends, and projections lag", 4, 10 * all, true, 4, 2},
		{"no single sends", 0, 10 * all, false, 0, all},
		{"no single sends, and projections lag", 0, 10 * all, true, 0, 0},
		{"nothing", 0, 0, false, 0, 0},
	} {
		w := newLanes(counted{work.LaneLive: c.live, work.LaneBulk: c.bulk}, c.closed)
		live, bulk, liveFirst := inLanes(w.leaseRound(t.Context()))
		if live != c.wantLive || bulk != c.wantBulk {
			t.Errorf("%s: %d live and %d bulk, want %d and %d", c.name, live, bulk, c.wantLive, c.wantBulk)
		}
		if !liveFirst {
			t.Errorf("%s: an item of a batch precedes a live one", c.name)
		}
	}
}

// A flood of single sends does not starve an import, and an import does not hold up single sends, also if
// a model derives one item at a time.
func TestWorker_SharesOneByOne(t *testing.T) {
	w := newLanes(counted{work.LaneLive: 1000, work.LaneBulk: 1000}, true)
	var items []work.Item
	for turn := range 400 {
		items = append(items, w.leaseOne(t.Context(), turn)...)
	}
	if live, bulk, _ := inLanes(items); live != 300 || bulk != 100 {
		t.Errorf("%d live and %d bulk, want 300 and 100", live, bulk)
	}
	w = newLanes(counted{work.LaneBulk: 10}, false)
	for turn := range 10 {
		if items := w.leaseOne(t.Context(), turn); len(items) != 1 {
			t.Errorf("request %d leases %d items while no live one waits", turn, len(items))
		}
	}
}

// A backlog of batches widens derivation as old live items do.
func TestWorker_BacklogWidens(t *testing.T) {
	clock := at
	w := newLanes(counted{work.LaneBulk: 2*leaseSize + 1}, false)
	w.Now, w.LoadGauge, w.Age = func() time.Time { return clock }, busyGauge{}, noAge
	w.leaseRound(t.Context())
	if got := w.currentWidth(); got != width/4 {
		t.Errorf("width %d at the start of a backlog", got)
	}
	clock = clock.Add(fullWidthAge)
	w.leaseRound(t.Context())
	if got := w.currentWidth(); got != width {
		t.Errorf("width %d of an old backlog", got)
	}
	w.leaseRound(t.Context())
	if got := w.currentWidth(); got != width/4 {
		t.Errorf("width %d after the backlog", got)
	}
}

// Two processes derive an import and single sends of the same data points. One is killed and starts
// again. Each revision is derived once, in its order, and every send ends.
func TestWorker_LanesOfTwoProcesses(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	w.log.Pace = engine.NewBatchPace(w.waiter, w.log.Logger, time.Now)
	const points = 60
	var sends []uuid.UUID
	batch := func(text string) {
		t.Helper()
		items := make([]ingest.DataPoint, points)
		for n := range items {
			items[n] = item(fmt.Sprint("text ", n), fmt.Sprintf("Ana likes %s %d.", text, n))
		}
		sends = append(sends, w.ingestBatch(items...))
	}
	single := func(n int, text string) { sends = append(sends, w.ingest(item(fmt.Sprint("text ", n), text))) }
	batch("tea")
	for n := 0; n < points; n += 3 {
		single(n, "Ana likes coffee.")
	}
	batch("water")
	w.confirm()
	process := func(name string) (kill func()) {
		ctx, cancel := context.WithCancel(t.Context())
		worker := w.worker(name)
		worker.Pace, worker.Now = engine.NewBatchPace(w.waiter, w.log.Logger, time.Now), time.Now
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(ctx) }()
		return func() {
			cancel()
			runtest.Must(t, <-ended)
		}
	}
	completed := func(id uuid.UUID) bool {
		return w.sendStatus(id).Status == datapoints.StatusCompleted
	}
	killFirst, killSecond := process("first"), process("second")
	w.until("a single send ends", func() bool { return completed(sends[1]) })
	killFirst()
	killFirst = process("first again")
	for n := 1; n < points; n += 3 {
		single(n, "Ana likes juice.")
	}
	for _, id := range sends {
		w.until("the send ends", func() bool { return completed(id) })
	}
	killFirst()
	killSecond()
	for n := range points {
		name := stream.Name(stream.Memory, stream.DataPointID(w.call.Principal.Project.Namespace, fmt.Sprint("text ", n)))
		events, err := w.log.ReadFrom(t.Context(), name, 0)
		runtest.Must(t, err)
		var got, want []string
		for _, e := range events {
			if d, is := e.Event.(*memory.Derived); is {
				got = append(got, fmt.Sprint(d.Revision))
			}
		}
		revisions := 2
		if n%3 != 2 {
			revisions = 3
		}
		for revision := range revisions {
			want = append(want, fmt.Sprint(revision+1))
		}
		if diff := cmp.Diff(strings.Join(want, " "), strings.Join(got, " ")); diff != "" {
			t.Errorf("revisions derived of text %d (-want +got):\n%s", n, diff)
		}
	}
	if backlog, err := w.queries.BulkByProject(t.Context()); err != nil || len(backlog) != 0 {
		t.Errorf("backlog %v, %v", backlog, err)
	}
}

// accept accepts texts that nobody derives.
func (w *harness) accept(count int) {
	w.t.Helper()
	for n := range count {
		w.ingest(item(fmt.Sprint("text ", n), "Ana likes tea."))
	}
	w.passHead()
}

// The items of a process that was killed are free within leaseDuration; those of one that works are
// renewed.
func TestWorker_RenewsLeases(t *testing.T) {
	w := newIdleHarness(t)
	w.accept(3)
	killed, works, other := w.worker("killed"), w.worker("works"), w.worker("other")
	if items := killed.lease(t.Context(), work.LaneLive, 1); len(items) != 1 {
		t.Fatalf("leased %v", items)
	}
	if items := works.lease(t.Context(), work.LaneLive, 2); len(items) != 2 {
		t.Fatalf("leased %v", items)
	}
	for range 2 {
		w.clock.move(leaseDuration / 2)
		items := other.lease(t.Context(), work.LaneLive, leaseSize)
		if w.clock.now().Before(at.Add(leaseDuration)) && len(items) != 0 {
			t.Fatalf("leased %v, which others hold", items)
		} else if !w.clock.now().Before(at.Add(leaseDuration)) && (len(items) != 1 || !items[0].Suspect) {
			t.Fatalf("leased %v, want the item of the killed process as a suspect", items)
		}
		runtest.Must(t, works.renewOnce(t.Context()))
	}
	// A lease that is never released is renewed only up to the limit.
	for elapsed := leaseDuration; elapsed < renewLimit; elapsed += leaseDuration / 2 {
		w.clock.move(leaseDuration / 2)
		runtest.Must(t, works.renewOnce(t.Context()))
	}
	w.clock.move(leaseDuration)
	if items := other.lease(t.Context(), work.LaneLive, leaseSize); len(items) != 3 {
		t.Errorf("leased %d items after the limit, want 3", len(items))
	}
}

// A lease that is released or given up is not renewed.
func TestWorker_RenewsOnlyWhatItHolds(t *testing.T) {
	w := newIdleHarness(t)
	w.accept(2)
	worker := w.worker("one")
	items := worker.lease(t.Context(), work.LaneLive, 2)
	if len(items) != 2 || len(worker.held.takenAfter(time.Time{})) != 2 {
		t.Fatalf("leased %v", items)
	}
	worker.release(t.Context(), []result{{dataPoint: items[0].DataPoint}})
	if held := worker.held.takenAfter(time.Time{}); len(held) != 1 || held[0] != items[1].DataPoint {
		t.Errorf("held %v, want the second item", held)
	}
	worker.Progress = nil // its release panics, which is logged
	worker.release(t.Context(), []result{{dataPoint: items[1].DataPoint}})
	if held := worker.held.takenAfter(time.Time{}); len(held) != 0 {
		t.Errorf("held %v after a release that failed", held)
	}
	again := worker.lease(t.Context(), work.LaneLive, 2)
	if len(again) != 1 || again[0].DataPoint != items[0].DataPoint {
		t.Errorf("leased %v, want the released item", again)
	}
}

// What works takes a second each: so many seconds tell how many worked at once.
func TestThrottle_NarrowsWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var busy atomic.Bool
		l := newThrottle(4, func() int {
			if busy.Load() {
				return 1
			}
			return 4
		})
		var working, most atomic.Int64
		run := func(n int) time.Duration {
			began := time.Now()
			for range n {
				if !l.acquire(t.Context()) {
					t.Fatal("no lane")
				}
				most.Store(max(most.Load(), working.Add(1)))
				go func() {
					_ = backoff.Pause(context.WithoutCancel(t.Context()), time.Second, nil)
					working.Add(-1)
					l.release()
				}()
			}
			for working.Load() > 0 {
				_ = backoff.Pause(t.Context(), time.Millisecond, nil)
			}
			return time.Since(began).Round(100 * time.Millisecond)
		}
		if took := run(8); took != 2*time.Second || most.Load() != 4 {
			t.Errorf("8 took %v with at most %d at once", took, most.Load())
		}
		busy.Store(true)
		most.Store(0)
		if took := run(3); took != 3*time.Second || most.Load() != 1 {
			t.Errorf("while busy 3 took %v with at most %d at once", took, most.Load())
		}
		// It widens as soon as it is calm, though nobody left meanwhile.
		if !l.acquire(t.Context()) {
			t.Fatal("no lane")
		}
		time.AfterFunc(time.Minute, func() { busy.Store(false) })
		began := time.Now()
		if !l.acquire(t.Context()) {
			t.Fatal("no lane")
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+busyPoll {
			t.Errorf("the second lane opened after %v", took)
		}
	})
}

func TestThrottle_ContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := newThrottle(1, func() int { return 1 })
	if !l.acquire(ctx) {
		t.Fatal("no lane")
	}
	cancel()
	if l.acquire(ctx) {
		t.Error("a slot opened after the end")
	}
}

func TestThrottle_ShareGrowsWithAge(t *testing.T) {
	for age, want := range map[time.Duration]int{
		-time.Second: 4, 0: 4, fullWidthAge / 4: 7, fullWidthAge / 2: 10, fullWidthAge - 1: 15, fullWidthAge: 16,
		time.Hour: 16,
	} {
		if got := busyWidth(16, age); got != want {
			t.Errorf("%d lanes at %v, want %d", got, age, want)
		}
	}
	if busyWidth(1, 0) != 1 || busyWidth(2, 0) != 1 {
		t.Error("no lane is open")
	}
}

// idle is a load gauge of a service without callers.
type idle struct{}

func (idle) Busy() bool { return false }

// noAge is the age of the oldest item in an empty queue.
func noAge() time.Duration { return 0 }

// busyGauge is a foreground that never pauses.
type busyGauge struct{}

func (busyGauge) Busy() bool { return true }

func TestThrottle_ForegroundNeverPauses(t *testing.T) {
	w := &Worker{LoadGauge: busyGauge{}, Age: noAge, Now: time.Now}
	if got := w.currentWidth(); got != width/4 {
		t.Errorf("%d lanes where no age is known", got)
	}
	age := fullWidthAge
	w.Age = func() time.Duration { return age }
	if got := w.currentWidth(); got != width {
		t.Errorf("%d lanes where the oldest item waits for %v", got, age)
	}
	w.LoadGauge = idle{}
	if age = 0; w.currentWidth() != width {
		t.Errorf("%d lanes where nobody crowds", w.currentWidth())
	}
}
