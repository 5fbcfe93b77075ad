package pipeline

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

const (
	// leaseDuration is longer than an attempt: a model has two minutes for one text.
	leaseDuration = 3 * time.Minute
	// releaseTimeout bounds the release of leases, also while the process stops.
	releaseTimeout = 5 * time.Second
)

// queue is the work list of derivation.
type queue interface {
	// Lease leases the next items to derive: oldest first, fair between projects, one at a time per
	// data point. The next call begins after project next.
	Lease(ctx context.Context, r work.LeaseRequest) (items []work.Item, next uuid.UUID, err error)
	// Release ends leases.
	Release(ctx context.Context, holder string, dataPoints []uuid.UUID) error
}

// lease leases the next items. Only one goroutine may call it. If the queue cannot be read, it logs
// that and returns none.
func (w *Worker) lease(ctx context.Context, size int) (items []work.Item) {
	err := panics.Call(ctx, w.Logger, "lease of items panicked", func() (err error) {
		now := w.Now()
		items, w.next, err = w.Queue.Lease(ctx,
			work.LeaseRequest{Holder: w.Holder, Limit: size, After: w.next, Now: now, Until: now.Add(leaseDuration)})
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
	waitCtx, cancel := context.WithTimeout(ctx, leaseDuration)
	defer cancel()
	if err := w.Progress.Wait(waitCtx, last, projection.DataPoints); err != nil && ctx.Err() == nil {
		return // the leases run out
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
		releaseCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		if err := w.Queue.Release(releaseCtx, w.Holder, waiting[next]); err != nil {
			w.Logger.WarnContext(ctx, "release of leases failed, they run out", "err", err)
		}
		cancel()
		delete(waiting, next)
	}
}
