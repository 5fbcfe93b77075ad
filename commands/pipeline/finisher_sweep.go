package pipeline

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/internal/todo"
)

// sweep ends the blobs that nothing referred to in time, and the stages that are of no more use.
func (f *Finisher) sweep(ctx context.Context, all bool, done *Erasure) (wait time.Duration, err error) {
	if left := f.sweepAt.Sub(f.Now()); left > 0 && !all {
		return left, nil
	}
	f.sweepAt = f.Now().Add(sweepEvery)
	for ctx.Err() == nil {
		// Read the time before the clocks are compared: a deadline that has passed by then is not
		// affected by a later jump.
		now := f.Now()
		if rest := f.slept.rest(); rest > 0 {
			return rest, nil
		}
		found, err := f.loose(ctx, now)
		if err != nil || len(found) == 0 {
			return 0, err
		}
		// A blob is loose only where no batch is to be fanned out that may refer to it: that is known at the head of the log.
		if err := f.passHead(ctx, dataPoints); err != nil {
			return 0, err
		}
		if found, err = f.loose(ctx, now); err != nil {
			return 0, err
		}
		swept, err := f.sweepAll(ctx, found, now)
		done.Blobs += swept
		if err != nil || swept == 0 {
			return 0, err
		}
		if err := f.passHead(ctx, dataPoints); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func (f *Finisher) loose(ctx context.Context, now time.Time) ([]todo.Blob, error) {
	return f.List.LooseBlobs(ctx, now, now.Add(commands.BlobKeep-commands.StageKeep), cleanSize)
}

func (f *Finisher) sweepAll(ctx context.Context, found []todo.Blob, now time.Time) (int, error) {
	var group errgroup.Group
	group.SetLimit(finishWidth)
	var swept atomic.Int64
	errs := make([]error, len(found))
	for i, b := range found {
		group.Go(func() error {
			errs[i] = f.bounded(ctx, func(ctx context.Context) error {
				gone, err := f.Log.Sweep(ctx, b, now)
				if gone {
					swept.Add(1)
				}
				return err
			})
			return nil
		})
	}
	err := errors.Join(group.Wait(), errors.Join(errs...))
	return int(swept.Load()), err
}
