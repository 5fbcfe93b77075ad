// Package pipeline derives memories from accepted revisions and completes what commits left to do.
//
// The worker derives, the confirmer ends sends, the embedder stores vectors, and the finisher
// completes fan-outs and schedules package erasure. Each reads its work list from a projection and
// decides on the streams: an outdated list costs a read, never a second effect.
package pipeline

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

const (
	// leaseSize is how many items are leased at a time, and width how many of them are derived at
	// once. An item waits for the disk, and concurrent appends share one fsync, so the width follows
	// the disk and not the processor.
	leaseSize = 256
	width     = 64
	// slowWidth is how many items a slow extractor reads at once.
	slowWidth = 16
	// fullWidthAge is the age of the oldest item from which derivation uses its full width, even
	// while callers are busy.
	fullWidthAge = 2 * time.Second
	// gatherPause is how long new items gather before they are leased.
	gatherPause = 20 * time.Millisecond
	// idlePoll is how often a list is read although no projection moved: leases run out silently.
	idlePoll = time.Second
)

// progress reports what projections have applied.
type progress interface {
	Wait(ctx context.Context, position eventstore.Position, projections ...string) error
	// Position returns the position up to which a projection has applied the log.
	Position(ctx context.Context, projection string) (eventstore.Position, error)
	// Watch signals moves of a projection. Moves while nobody receives count as one.
	Watch(projection string) (moved <-chan struct{}, stop func())
}

// loadGauge reports whether many callers wait at the moment.
type loadGauge interface {
	Busy() bool
}

// Worker derives memories from the items of the queue.
type Worker struct {
	Journal   *engine.Journal
	Queue     queue
	Progress  progress
	Extractor Extractor
	Logger    *slog.Logger
	// LoadGauge has priority: while it is busy, derivation uses less width, unless the oldest item
	// has waited for long.
	LoadGauge loadGauge
	// Age returns how long the oldest live item has waited.
	Age func() time.Duration
	// Paused reports whether no item is to be leased at the moment. Nil never does.
	Paused func() bool
	// Pace holds up items of batches while projections lag. Nil never does.
	Pace *engine.BatchPace
	// Slow is true if the extractor mostly waits for a remote model: no item then waits for another
	// item's answer.
	Slow bool
	// Holder names this process in the leases.
	Holder string
	Now    func() time.Time
	// nextLive and nextBulk are the projects after which the next leases of the lanes begin.
	nextLive, nextBulk uuid.UUID
	held               heldLeases
	// backlogSince is since when every request for items of batches is filled, in nanoseconds of Unix time;
	// 0 if the last one was not.
	backlogSince atomic.Int64
	// moved and released end the wait for items. They are nil while the worker does not run.
	moved, released chan struct{}
}

// Run derives until the context ends. It completes the appends of attempts that have begun.
func (w *Worker) Run(ctx context.Context) error {
	background, ctx := errgroup.WithContext(ctx)
	w.moved, w.released = make(chan struct{}, 1), make(chan struct{}, 1)
	stop := watchAll(ctx, w.Progress, w.Logger, w.moved, awaited...)
	defer stop()
	background.Go(func() error { w.renewLeases(ctx); return nil })
	if w.Slow {
		background.Go(func() error { w.deriveEach(ctx, background); return nil })
		return background.Wait()
	}
	background.Go(func() error {
		for ctx.Err() == nil {
			items := w.leaseRound(ctx)
			w.deriveAll(ctx, background, items)
			if len(items) < leaseSize {
				w.awaitItems(ctx)
			}
		}
		return nil
	})
	return background.Wait()
}

// awaitItems waits until there may be more items: a projection moved, and new ones have gathered for a
// moment, or leases were released. A later revision of a data point waits for nothing else.
func (w *Worker) awaitItems(ctx context.Context) {
	idle := time.NewTimer(idlePoll)
	defer idle.Stop()
	select {
	case <-w.released:
		return
	case <-w.moved:
	case <-idle.C:
	case <-ctx.Done():
		return
	}
	_ = backoff.Pause(ctx, gatherPause, w.released)
}

// deriveAll derives the leased items in their order, the suspect ones at last and one by one. It releases
// their leases once the queue shows the results.
func (w *Worker) deriveAll(ctx context.Context, background *errgroup.Group, items []work.Item) {
	if len(items) == 0 {
		return
	}
	results := make([]result, len(items))
	slots := newThrottle(width, w.currentWidth)
	var group errgroup.Group
	for i, item := range items {
		results[i] = result{dataPoint: item.DataPoint}
		if item.Suspect || !slots.acquire(ctx) {
			continue
		}
		group.Go(func() error {
			defer slots.release()
			results[i] = w.attempt(ctx, item)
			return nil
		})
	}
	_ = group.Wait() // the goroutines return no error: each failure is logged and its item is retried
	// A suspect item may end the process. No other attempt runs at that time, so that none becomes
	// suspect with it.
	for i, item := range items {
		if item.Suspect && ctx.Err() == nil {
			results[i] = w.attempt(ctx, item)
		}
	}
	background.Go(func() error { w.release(ctx, results); return nil })
}

// currentWidth returns how many items may be derived at once.
func (w *Worker) currentWidth() int {
	if !w.LoadGauge.Busy() {
		return width
	}
	return busyWidth(width, max(w.Age(), w.backlogAge()))
}

// deriveEach derives one item in each of slowWidth slots until the context ends. An item is leased
// when there is a slot for it, so that its lease only has to outlast the attempt. An item whose model
// hangs holds up no other slot.
func (w *Worker) deriveEach(ctx context.Context, background *errgroup.Group) {
	slots := newThrottle(slowWidth, func() int { return slowWidth })
	for turn := 0; slots.acquire(ctx); turn++ {
		items := w.leaseOne(ctx, turn)
		if len(items) == 0 {
			slots.release()
			w.awaitItems(ctx)
			continue
		}
		background.Go(func() error {
			r := w.attempt(ctx, items[0])
			slots.release() // before the lease, whose release may wait for a pause
			w.release(ctx, []result{r})
			return nil
		})
	}
}

// attempt makes one attempt at an item. If the attempt cannot be recorded, which includes a panic,
// that is logged and the item is retried.
func (w *Worker) attempt(ctx context.Context, item work.Item) (res result) {
	err := panics.Call(ctx, w.Logger, "attempt panicked", func() (err error) {
		res, err = w.derive(ctx, item)
		return err
	}, "data_point", item.DataPoint, "revision", item.Revision)
	if err != nil && ctx.Err() == nil {
		w.Logger.ErrorContext(ctx, "record of an attempt failed, will retry",
			"data_point", item.DataPoint, "revision", item.Revision, "err", err)
		res.backoff = firstBackoff
	}
	res.dataPoint = item.DataPoint
	if item.Lane == work.LaneBulk {
		w.Pace.Appended(res.position, 1)
	}
	return res
}

// awaited are the projections whose moves let the worker look for items: of the queue, and of the pace of
// batches.
var awaited = []string{projection.DataPoints, projection.Memories, projection.RecallIndex}

// bulkShare is the part of the items that batches get however many live items wait: one of bulkShare.
const bulkShare = 4

// leaseRound leases at most leaseSize items, the live ones first in the list. Batches get their share of
// them, and beyond it what the live lane leaves if the pace allows it.
func (w *Worker) leaseRound(ctx context.Context) []work.Item {
	items := w.lease(ctx, work.LaneLive, leaseSize-leaseSize/bulkShare)
	if len(items) > 0 {
		w.Pace.Live()
	}
	limit := leaseSize - len(items)
	if !w.Pace.IsOpen(ctx) {
		limit = (len(items) + bulkShare - 2) / (bulkShare - 1)
	}
	if limit == 0 {
		return items
	}
	bulk := w.lease(ctx, work.LaneBulk, limit)
	w.noteBacklog(len(bulk) == limit)
	if len(bulk) < limit && len(items) == leaseSize-leaseSize/bulkShare {
		items = append(items, w.lease(ctx, work.LaneLive, limit-len(bulk))...)
	}
	return append(items, bulk...)
}

// leaseOne leases one item of any lane. Every fourth request, counted by turn, begins with batches.
func (w *Worker) leaseOne(ctx context.Context, turn int) []work.Item {
	if turn%bulkShare == 0 {
		if items := w.lease(ctx, work.LaneBulk, 1); len(items) > 0 {
			return items
		}
	}
	items := w.lease(ctx, work.LaneLive, 1)
	if len(items) > 0 {
		w.Pace.Live()
	}
	if len(items) == 0 && turn%bulkShare != 0 && w.Pace.IsOpen(ctx) {
		items = w.lease(ctx, work.LaneBulk, 1)
	}
	return items
}

// noteBacklog records whether a request for items of batches was filled.
func (w *Worker) noteBacklog(filled bool) {
	switch {
	case !filled:
		w.backlogSince.Store(0)
	case w.backlogSince.Load() == 0:
		w.backlogSince.Store(w.Now().UnixNano())
	}
}

// backlogAge returns for how long items of batches have waited for others.
func (w *Worker) backlogAge() time.Duration {
	since := w.backlogSince.Load()
	if since == 0 {
		return 0
	}
	return w.Now().Sub(time.Unix(0, since))
}

// busyPoll is how often a throttle below its full width reads its limit.
const busyPoll = 10 * time.Millisecond

// throttle bounds how many items are worked on at once. The bound may change at any time.
type throttle struct {
	width    int
	limit    func() int
	held     int
	released chan struct{} // one token for each release that is not counted yet
}

// newThrottle returns a throttle whose limit never exceeds width.
func newThrottle(width int, limit func() int) *throttle {
	return &throttle{width: width, limit: limit, released: make(chan struct{}, width)}
}

// busyWidth returns the part of a width that derivation uses while callers are busy: a quarter, and
// more the longer the oldest item waits, up to all of it. Otherwise a client that never pauses would
// permanently outpace derivation.
func busyWidth(width int, age time.Duration) int {
	least := max(width/4, 1)
	return least + int(int64(width-least)*int64(min(max(age, 0), fullWidthAge))/int64(fullWidthAge))
}

// acquire waits for a slot. It returns false if the context ends first. Only one goroutine may call
// it.
func (t *throttle) acquire(ctx context.Context) bool {
	for ctx.Err() == nil {
		limit, poll := t.limit(), time.Duration(-1)
		if limit < t.width {
			poll = busyPoll
		}
		t.count()
		if t.held < limit {
			t.held++
			return true
		}
		t.wait(ctx, poll)
	}
	return false
}

// release returns a slot. Any goroutine may call it.
func (t *throttle) release() { t.released <- struct{}{} }

// count counts the releases so far.
func (t *throttle) count() {
	for {
		select {
		case <-t.released:
			t.held--
		default:
			return
		}
	}
}

// wait waits for a release, at most for poll unless that is negative.
func (t *throttle) wait(ctx context.Context, poll time.Duration) {
	var timeout <-chan time.Time
	if poll >= 0 {
		timer := time.NewTimer(poll)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-t.released:
		t.held--
	case <-timeout:
	case <-ctx.Done():
	}
}

const (
	// leaseDuration is how long a lease lasts after its last renewal, which bounds how long a process
	// that was killed holds its items. It is longer than a process may pause, or the clocks of two differ.
	leaseDuration = 15 * time.Second
	// renewInterval is how often leases are renewed.
	renewInterval = 4 * time.Second
	// renewLimit is for how long a lease is renewed. It is longer than an attempt and its pause: a model
	// has two minutes for one text.
	renewLimit = 10 * time.Minute
	// leaseTimeout bounds a renewal, and a release of leases, also while the process stops.
	leaseTimeout = 5 * time.Second
)

// queue is the work list of derivation.
type queue interface {
	// Lease leases the next items of a lane to derive: oldest first, fair between projects, one at a time
	// per data point. The next call begins after project next.
	Lease(ctx context.Context, r work.LeaseRequest) (items []work.Item, next uuid.UUID, err error)
	// Extend sets the end of those leases that the holder still has.
	Extend(ctx context.Context, holder string, dataPoints []uuid.UUID, until time.Time) error
	// Release ends leases.
	Release(ctx context.Context, holder string, dataPoints []uuid.UUID) error
}

// heldLeases are the leases that a worker renews, with when they were taken. The zero value is empty.
type heldLeases struct {
	mu    sync.Mutex
	since map[uuid.UUID]time.Time
}

func (h *heldLeases) add(items []work.Item, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since == nil {
		h.since = make(map[uuid.UUID]time.Time)
	}
	for _, item := range items {
		h.since[item.DataPoint] = now
	}
}

func (h *heldLeases) drop(dataPoints []uuid.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range dataPoints {
		delete(h.since, id)
	}
}

// takenAfter returns the leases that were taken after a time.
func (h *heldLeases) takenAfter(earliest time.Time) (dataPoints []uuid.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, since := range h.since {
		if since.After(earliest) {
			dataPoints = append(dataPoints, id)
		}
	}
	return dataPoints
}

// renewLeases renews the leases of this process until the context ends.
func (w *Worker) renewLeases(ctx context.Context) {
	for ctx.Err() == nil {
		_ = backoff.Pause(ctx, renewInterval, nil)
		err := panics.Call(ctx, w.Logger, "renewal of leases panicked", func() error { return w.renewOnce(ctx) })
		if err != nil && ctx.Err() == nil {
			w.Logger.WarnContext(ctx, "renewal of leases failed, will retry", "err", err)
		}
	}
}

func (w *Worker) renewOnce(ctx context.Context) error {
	now := w.Now()
	dataPoints := w.held.takenAfter(now.Add(-renewLimit))
	if len(dataPoints) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	return w.Queue.Extend(ctx, w.Holder, dataPoints, now.Add(leaseDuration))
}

// lease leases the next items of a lane, none while it is paused. Only one goroutine may call it. If the queue cannot
// be read, it logs that and returns none.
func (w *Worker) lease(ctx context.Context, lane work.Lane, size int) (items []work.Item) {
	if w.Paused != nil && w.Paused() {
		return nil
	}
	err := panics.Call(ctx, w.Logger, "lease of items panicked", func() (err error) {
		now, next := w.Now(), w.nextLive
		if lane == work.LaneBulk {
			next = w.nextBulk
		}
		items, next, err = w.Queue.Lease(ctx, work.LeaseRequest{
			Holder: w.Holder, Limit: size, Lane: lane, After: next, Now: now, Until: now.Add(leaseDuration),
		})
		if lane == work.LaneBulk {
			w.nextBulk = next
		} else {
			w.nextLive = next
		}
		w.held.add(items, now)
		return err
	})
	if err != nil && ctx.Err() == nil {
		w.Logger.WarnContext(ctx, "lease of items failed, will retry", "err", err)
	}
	return items
}

// result is what the release of a lease waits for: that the queue has applied a position, and a
// pause.
type result struct {
	dataPoint uuid.UUID
	position  eventstore.Position
	backoff   time.Duration
}

// release releases leases: each once the queue shows its outcome and its pause is over. After a
// panic, which is logged, the leases run out.
func (w *Worker) release(ctx context.Context, results []result) {
	_ = panics.Call(ctx, w.Logger, "release of leases panicked", func() error { w.releaseAll(ctx, results); return nil })
}

func (w *Worker) releaseAll(ctx context.Context, results []result) {
	var last eventstore.Position
	waiting := make(map[time.Duration][]uuid.UUID)
	for _, r := range results {
		last = max(last, r.position)
		waiting[r.backoff] = append(waiting[r.backoff], r.dataPoint)
	}
	defer func() { // what is not released runs out
		for _, dataPoints := range waiting {
			w.held.drop(dataPoints)
		}
	}()
	waitCtx, cancel := context.WithTimeout(ctx, renewLimit)
	defer cancel()
	if err := w.Progress.Wait(waitCtx, last, projection.DataPoints); err != nil && ctx.Err() == nil {
		return
	}
	// Release every lease on an orderly stop: a lease that runs out makes its item suspect.
	var elapsed time.Duration
	for len(waiting) > 0 {
		next := time.Duration(-1)
		for backoff := range waiting {
			if next < 0 || backoff < next {
				next = backoff
			}
		}
		_ = backoff.Pause(ctx, next-elapsed, nil)
		elapsed = next
		dataPoints := waiting[next]
		delete(waiting, next)
		w.held.drop(dataPoints) // first: once it is released, this process may lease an item again
		releaseCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
		if err := w.Queue.Release(releaseCtx, w.Holder, dataPoints); err != nil {
			w.Logger.WarnContext(ctx, "release of leases failed, they run out", "err", err)
		}
		cancel()
		signal(w.released)
	}
}
