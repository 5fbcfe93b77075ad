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

// bulks completes the bulk writes that their process left long enough ago, with all every one.
func (f *Finisher) bulks(ctx context.Context, all bool) (wait time.Duration, err error) {
	if f.Identities == nil {
		return 0, nil
	}
	bulks, err := f.Identities.UnfannedBulks(ctx, finishSize)
	if err != nil {
		return 0, err
	}
	var errs []error
	d := due{now: f.Now(), all: all}
	for _, b := range bulks {
		if !d.is(b.AcceptedAt) {
			continue
		}
		if err := f.resumeBulk(ctx, b); err != nil {
			errs = append(errs, fmt.Errorf("bulk write %s: %w", b.ID, err))
		}
	}
	return f.worked(ctx, d, errs)
}

// cutDue cuts off the text of removals that their process left long enough ago, with all of every one.
func (f *Finisher) cutDue(ctx context.Context, all bool) (wait time.Duration, err error) {
	if f.Identities == nil {
		return 0, nil
	}
	var errs []error
	d := due{now: f.Now(), all: all}
	if err := f.cutRemovals(ctx, func(r todo.Removal) bool { return d.is(r.RemovedAt) }); err != nil {
		errs = append(errs, err)
	}
	return f.worked(ctx, d, errs)
}

// worked waits until the directory shows what was done.
func (f *Finisher) worked(ctx context.Context, d due, errs []error) (wait time.Duration, err error) {
	if d.worked && len(errs) == 0 {
		d.wait = idlePoll // there may be more of it
		errs = append(errs, f.passHead(ctx, directory))
	}
	return d.wait, errors.Join(errs...)
}

// due finds which pieces of work are no longer left to their own process.
type due struct {
	now time.Time
	all bool
	// worked is true once one was due, and wait after what time the next one will be.
	worked bool
	wait   time.Duration
}

// is reports whether a piece of work is due that began at a time.
func (d *due) is(since time.Time) bool {
	left := finishAfter - d.now.Sub(since)
	if left <= 0 || d.all {
		d.worked = true
		return true
	}
	if d.wait == 0 || left < d.wait {
		d.wait = left
	}
	return false
}

func (f *Finisher) resumeBulk(ctx context.Context, b todo.Bulk) error {
	return f.bounded(ctx, func(ctx context.Context) error {
		return f.Log.ResumeBulk(ctx, f.Identities, f.Progress, b.ID, f.Now())
	})
}
