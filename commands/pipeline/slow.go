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
	lanes := newLanes(slowWidth, func() int { return slowWidth })
	for lanes.enter(ctx) {
		items := w.claim(ctx, 1)
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
	r := w.attempt(ctx, item)
	lanes.leave()
	w.release(ctx, []result{r})
}
