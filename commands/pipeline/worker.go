// Package pipeline derives memories from accepted revisions and completes what commits left to do.
//
// The worker derives, the confirmer ends sends, the embedder stores vectors, and the finisher
// completes fan-outs and schedules package erasure. Each reads its work list from a projection and
// decides on the streams: an outdated list costs a read, never a second effect.
package pipeline

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/panics"
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
	Journal   *commands.Journal
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
	Pace *commands.BatchPace
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
