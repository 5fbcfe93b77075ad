package pipeline

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/internal/todo"
)

// slowWidth is how many items a slow extractor is asked about at once.
const slowWidth = 16

// deriveEach works on one item in each of its lanes until the context ends. An item is taken when there is a lane for it, so
// that its lease has only the attempt to outlive; one whose endpoint hangs keeps its own lane, and nobody else's.
func (w *Worker) deriveEach(ctx context.Context, background *errgroup.Group, moved <-chan struct{}) {
	lanes := newLanes(slowWidth, slowWidth, func() bool { return false })
	for lanes.enter(ctx) {
		now := w.Now()
		items, err := w.Queue.Claim(ctx, w.Holder, 1, now, now.Add(leaseFor))
		if err != nil && ctx.Err() == nil {
			w.Logger.WarnContext(ctx, "the queue cannot be read", "err", err)
		}
		if len(items) == 0 {
			lanes.leave()
			await(ctx, moved, idlePoll)
			await(ctx, nil, claimPause)
			continue
		}
		background.Go(func() error {
			w.deriveOne(ctx, lanes, items[0])
			return nil
		})
	}
}

// deriveOne makes an attempt in a lane that was entered, and gives the lease back without keeping the lane.
func (w *Worker) deriveOne(ctx context.Context, lanes *lanes, item todo.Item) {
	r, err := w.derive(ctx, item)
	if err != nil && ctx.Err() == nil {
		w.Logger.ErrorContext(ctx, "an attempt could not be recorded", "data_point", item.DataPoint, "revision", item.Revision, "err", err)
		r.backoff = firstBackoff
	}
	lanes.leave()
	w.release(ctx, []result{r})
}
