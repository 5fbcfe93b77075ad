package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

// CatchUp completes every pending fan-out, whichever process left it. It runs before writes are
// admitted, while the projections are at the head of the log.
//
// Deleted text must not be served again, so a deletion that cannot be completed for now is an
// error. A deletion that can never be completed, because something stored is unreadable, is
// recorded as stuck; otherwise the service could not start. A failed batch is left to later rounds,
// since it concerns its own send alone. So are the batches of a project with a stuck deletion.
func (f *Finisher) CatchUp(ctx context.Context) error {
	if err := f.catchUpBulks(ctx); err != nil {
		return err
	}
	left, deleting := make(map[uuid.UUID]bool), make(map[uuid.UUID]bool)
	for {
		open, err := f.FanOuts.PendingFanOuts(ctx, finishSize+len(left))
		if err != nil {
			return err
		}
		worked := false
		for _, op := range open {
			if left[op.ID] {
				continue
			}
			deletion := op.Category == stream.Deletion
			if f.isSetAside(op) || !deletion && deleting[op.ProjectID] {
				left[op.ID] = true
				continue
			}
			worked = true
			err := f.attempt(ctx, op)
			switch {
			case err == nil:
			case deletion && !commands.Lasting(err):
				return err
			case deletion:
				left[op.ID], deleting[op.ProjectID] = true, true
			default:
				f.Logger.ErrorContext(ctx, "fan-out of a batch failed, will retry", "send", op.ID, "err", err)
				left[op.ID] = true
			}
		}
		if !worked {
			return nil
		}
		head, err := f.Journal.Store.Head(ctx)
		if err != nil {
			return err
		}
		if err := f.Progress.Wait(ctx, head, projection.DataPoints); err != nil {
			return err
		}
	}
}

// catchUpBulks completes every pending bulk write. A bulk write that cannot be completed is left to
// later rounds: the directory shows all its rows anyway.
func (f *Finisher) catchUpBulks(ctx context.Context) error {
	left := make(map[uuid.UUID]bool)
	for {
		open, err := f.Identities.PendingBulks(ctx, finishSize+len(left))
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
				f.Logger.ErrorContext(ctx, "fan-out of a bulk write failed, will retry", "bulk", b.ID, "err", err)
				left[b.ID] = true
			}
		}
		if !worked {
			return nil
		}
		if err := f.waitHead(ctx, projection.Directory); err != nil {
			return err
		}
	}
}

// completeFanOuts completes the deletions and batches that are due.
func (f *Finisher) completeFanOuts(ctx context.Context, all bool) (wait time.Duration, err error) {
	limit := finishSize + f.stuck.count()
	open, err := f.FanOuts.PendingFanOuts(ctx, limit)
	if err != nil {
		return 0, err
	}
	if len(open) < limit {
		pending := make(map[uuid.UUID]bool, len(open))
		for _, op := range open {
			pending[op.ID] = true
		}
		f.stuck.retain(pending)
	}
	var errs []error
	d := due{now: f.Now(), all: all}
	// Deletions come first in the list. While a deletion of a project is pending, no batch of that
	// project is resumed: it could create what the deletion takes.
	deleting := make(map[uuid.UUID]bool)
	for _, op := range open {
		if f.isSetAside(op) {
			continue
		}
		deletion := op.Category == stream.Deletion
		switch {
		case !all && f.stuck.isResting(op.ID, d.now), d.isLeft(op.AcceptedAt):
			deleting[op.ProjectID] = deleting[op.ProjectID] || deletion
			continue
		case !deletion && deleting[op.ProjectID]:
			continue
		}
		d.worked = true
		if err := f.attempt(ctx, op); err != nil {
			deleting[op.ProjectID] = deleting[op.ProjectID] || deletion
			errs = append(errs, fmt.Errorf("%s %s: %w", op.Category, op.ID, err))
		}
	}
	return f.afterDue(ctx, d, projection.DataPoints, errors.Join(errs...))
}

// completeBulks completes the bulk writes that are due.
func (f *Finisher) completeBulks(ctx context.Context, all bool) (wait time.Duration, err error) {
	limit := finishSize + f.stuckBulks.count()
	bulks, err := f.Identities.PendingBulks(ctx, limit)
	if err != nil {
		return 0, err
	}
	if len(bulks) < limit {
		pending := make(map[uuid.UUID]bool, len(bulks))
		for _, b := range bulks {
			pending[b.ID] = true
		}
		f.stuckBulks.retain(pending)
	}
	var errs []error
	d := due{now: f.Now(), all: all}
	for _, b := range bulks {
		if !all && f.stuckBulks.isResting(b.ID, d.now) || !d.is(b.AcceptedAt) {
			continue
		}
		if err := f.resumeBulk(ctx, b); err != nil {
			errs = append(errs, fmt.Errorf("bulk write %s: %w", b.ID, err))
		}
	}
	return f.afterDue(ctx, d, projection.Directory, errors.Join(errs...))
}

// resumeBulk resumes the fan-out of a bulk write. It records one that cannot be completed.
func (f *Finisher) resumeBulk(ctx context.Context, b work.Bulk) error {
	err := f.bounded(ctx, func(ctx context.Context) error {
		return f.Journal.ResumeBulk(ctx, f.Identities, f.Progress, b.ID, f.Now())
	})
	f.record(ctx, &f.stuckBulks, work.Operation{
		ProjectID: b.ProjectID, Category: stream.Bulk, ID: b.ID, AcceptedAt: b.AcceptedAt, Position: b.Position,
	}, err)
	return err
}

func (f *Finisher) resume(ctx context.Context, op work.Operation) error {
	return f.bounded(ctx, func(ctx context.Context) error {
		if op.Category == stream.Deletion {
			_, err := f.Journal.ResumeDeletion(ctx, op.ID, f.Now())
			return err
		}
		return f.Journal.ResumeBatch(ctx, op.ID, f.Now())
	})
}

// due finds the operations that are no longer left to their own process.
type due struct {
	now time.Time
	all bool
	// worked is true once an operation was due. wait is the time after which the next one will be, 0
	// if none is left to its process.
	worked bool
	wait   time.Duration
}

// isLeft reports whether an operation of a time is left to its own process.
func (d *due) isLeft(since time.Time) bool {
	left := finishAfter - d.now.Sub(since)
	if left <= 0 || d.all {
		return false
	}
	if d.wait == 0 || left < d.wait {
		d.wait = left
	}
	return true
}

// is reports whether an operation of a time is due, and records that.
func (d *due) is(since time.Time) bool {
	if d.isLeft(since) {
		return false
	}
	d.worked = true
	return true
}

// afterDue waits until a projection shows what was done, and returns when the next round is due. err
// is what failed in this one.
func (f *Finisher) afterDue(ctx context.Context, d due, projection string, err error) (time.Duration, error) {
	if !d.worked || err != nil {
		return d.wait, err
	}
	// The list may have more operations than one page.
	return idlePoll, f.waitHead(ctx, projection)
}
