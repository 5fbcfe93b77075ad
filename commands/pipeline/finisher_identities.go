package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/internal/todo"
)

// directory is the projection that lists what is left to do about identities.
const directory = "directory"

// Identities is the list of what writes of identities left to do.
type Identities interface {
	commands.Directory
	UnfannedBulks(ctx context.Context, limit int) ([]todo.Bulk, error)
	OpenRemovals(ctx context.Context, behind *todo.Removal, limit int) ([]todo.Removal, error)
	Open(ctx context.Context) (bulks, removals int, err error)
}

// catchUpBulks completes every bulk write that stands open, whoever left it, the projections being at the head. One that cannot be
// completed is left to the later rounds: it is shown whole all the same.
func (f *Finisher) catchUpBulks(ctx context.Context) error {
	if f.Identities == nil {
		return nil
	}
	left := make(map[uuid.UUID]bool)
	for {
		open, err := f.Identities.UnfannedBulks(ctx, finishSize+len(left))
		if err != nil {
			return err
		}
		worked := false
		for _, b := range open {
			if left[b.ID] {
				continue
			}
			worked = true
			if err := f.resumeBulk(ctx, b); err != nil {
				f.Logger.ErrorContext(ctx, "a bulk write cannot be fanned out", "bulk", b.ID, "err", err)
				left[b.ID] = true
			}
		}
		if !worked {
			return nil
		}
		if err := f.passHead(ctx, directory); err != nil {
			return err
		}
	}
}

// identities completes the bulk writes that their process left long enough ago, and cuts off the text of such removals, with all of
// every one.
func (f *Finisher) identities(ctx context.Context, all bool) (wait time.Duration, err error) {
	if f.Identities == nil {
		return 0, nil
	}
	var errs []error
	worked := false
	// due reports whether a piece of work is no longer left to its own process, and else when it will be.
	due := func(since time.Time) bool {
		left := finishAfter - f.Now().Sub(since)
		if left <= 0 || all {
			worked = true
			return true
		}
		if wait == 0 || left < wait {
			wait = left
		}
		return false
	}
	bulks, err := f.Identities.UnfannedBulks(ctx, finishSize)
	if err != nil {
		return 0, err
	}
	for _, b := range bulks {
		if !due(b.AcceptedAt) {
			continue
		}
		if err := f.resumeBulk(ctx, b); err != nil {
			errs = append(errs, fmt.Errorf("bulk write %s: %w", b.ID, err))
		}
	}
	if err := f.cutRemovals(ctx, func(r todo.Removal) bool { return due(r.RemovedAt) }); err != nil {
		errs = append(errs, err)
	}
	if worked && len(errs) == 0 {
		wait = idlePoll // there may be more of them
		errs = append(errs, f.passHead(ctx, directory))
	}
	return wait, errors.Join(errs...)
}

func (f *Finisher) resumeBulk(ctx context.Context, b todo.Bulk) error {
	return f.bounded(ctx, func(ctx context.Context) error {
		return f.Log.ResumeBulk(ctx, f.Identities, f.Progress, b.ID, f.Now())
	})
}
