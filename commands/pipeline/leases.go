package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

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
