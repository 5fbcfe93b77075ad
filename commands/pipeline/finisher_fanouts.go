package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/commands/ingest"
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
			case deletion && !engine.Lasting(err):
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
		return identities.ResumeBulk(ctx, f.Journal, f.Identities, f.Progress, b.ID, f.Now())
	})
	f.record(ctx, &f.stuckBulks, work.Operation{
		ProjectID: b.ProjectID, Category: stream.Bulk, ID: b.ID, AcceptedAt: b.AcceptedAt, Position: b.Position,
	}, err)
	return err
}

func (f *Finisher) resume(ctx context.Context, op work.Operation) error {
	return f.bounded(ctx, func(ctx context.Context) error {
		if op.Category == stream.Deletion {
			_, err := ingest.ResumeDeletion(ctx, f.Journal, op.ID, f.Now())
			return err
		}
		return ingest.ResumeBatch(ctx, f.Journal, op.ID, f.Now())
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

const (
	// stuckPause is the pause between two tries of a stuck deletion, and the first one between two tries
	// of another stuck fan-out. That pause doubles up to longestStuckPause.
	stuckPause        = time.Minute
	longestStuckPause = time.Hour
)

// Stuck is a committed operation whose fan-out cannot be completed, because something that it needs
// cannot be read or the program panics. What a stuck deletion deletes is served until that is repaired
// or an operator sets the deletion aside.
type Stuck struct {
	work.Operation
	Err error
	// tried is when it was last tried; pause is the time until it is tried again.
	tried time.Time
	pause time.Duration
}

// stuckList holds stuck operations, for the loops of a finisher and for readers of its state.
type stuckList struct {
	mu sync.Mutex
	by map[uuid.UUID]Stuck
}

func (l *stuckList) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.by)
}

// isResting reports whether the pause after the last try of an operation has not ended.
func (l *stuckList) isResting(id uuid.UUID, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, is := l.by[id]
	return is && now.Sub(s.tried) < s.pause
}

// put records a try of an operation; first reports that it was not recorded before.
func (l *stuckList) put(s Stuck) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = make(map[uuid.UUID]Stuck)
	}
	last, before := l.by[s.ID]
	if s.pause = stuckPause; before && s.Category != stream.Deletion {
		s.pause = min(2*last.pause, longestStuckPause)
	}
	l.by[s.ID] = s
	return !before
}

func (l *stuckList) drop(id uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.by, id)
}

// retain drops the operations that are not among the pending ones: another process completed them.
func (l *stuckList) retain(pending map[uuid.UUID]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.by, func(id uuid.UUID, _ Stuck) bool { return !pending[id] })
}

// StuckFanOuts counts the batches and bulk writes that cannot be completed.
func (f *Finisher) StuckFanOuts() int {
	return f.stuck.count() - len(f.Stuck()) + f.stuckBulks.count()
}

// Stuck returns the deletions that cannot be completed, oldest first.
func (f *Finisher) Stuck() []Stuck {
	f.stuck.mu.Lock()
	defer f.stuck.mu.Unlock()
	list := make([]Stuck, 0, len(f.stuck.by))
	for _, s := range f.stuck.by {
		if s.Category == stream.Deletion {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b Stuck) int { return int(min(max(int64(a.Position)-int64(b.Position), -1), 1)) })
	return list
}

// isSetAside reports whether an operator has set a deletion aside. Such a deletion is not tried and
// blocks nothing.
func (f *Finisher) isSetAside(op work.Operation) bool {
	if op.Category != stream.Deletion || !f.IsSetAside(op.Position) {
		return false
	}
	f.stuck.drop(op.ID)
	return true
}

// attempt resumes a fan-out. It records one that cannot be completed, so that nothing else waits for
// it.
func (f *Finisher) attempt(ctx context.Context, op work.Operation) error {
	err := f.resume(ctx, op)
	f.record(ctx, &f.stuck, op, err)
	return err
}

// record records the outcome of a try in a list, and logs an operation that is new there.
func (f *Finisher) record(ctx context.Context, list *stuckList, op work.Operation, err error) {
	if err == nil {
		list.drop(op.ID)
	}
	if !engine.Lasting(err) || !list.put(Stuck{Operation: op, Err: err, tried: f.Now()}) {
		return
	}
	message := "a fan-out cannot be completed, will retry with growing pauses"
	if op.Category == stream.Deletion {
		message = "a deletion cannot be completed, what it deletes is served until it is repaired or set aside"
	}
	f.Logger.ErrorContext(ctx, message, //nolint:sloglint // one of two constants
		op.Category, op.ID, "project", op.ProjectID, "position", op.Position, "err", err)
}

// denials holds what the event store denied its user in the last try of each step.
type denials struct {
	mu sync.Mutex
	by map[string]*erasure.DeniedError
}

// note records how a step ended, and returns its error.
func (d *denials) note(step string, err error) error {
	denied := erasure.Denied(err)
	d.mu.Lock()
	defer d.mu.Unlock()
	if denied == nil {
		delete(d.by, step)
		return err
	}
	if d.by == nil {
		d.by = make(map[string]*erasure.DeniedError)
	}
	d.by[step] = denied
	return err
}

// Denied counts the erasures that the event store denied its user in their last try, with the error of one of them. It
// is nil if there are none.
func (f *Finisher) Denied() *erasure.DeniedError {
	f.denied.mu.Lock()
	defer f.denied.mu.Unlock()
	var all *erasure.DeniedError
	for _, step := range slices.Sorted(maps.Keys(f.denied.by)) { // the same one at each call
		d := f.denied.by[step]
		if all == nil {
			all = &erasure.DeniedError{First: d.First}
		}
		all.Count += d.Count
	}
	return all
}
