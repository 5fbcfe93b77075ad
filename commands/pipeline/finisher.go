package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/todo"
)

const (
	finishSize = 64
	// cleanSize is how many data points, deletions or blobs are taken from a list at a time.
	cleanSize = 256
	// finishWidth is how many operations are worked on at once; each works on several streams at once.
	finishWidth = 8
	// finishAfter is how long a committed operation is left to the process that committed it.
	finishAfter = 15 * time.Second
	// finishTimeout bounds one piece of the finisher's work.
	finishTimeout = time.Minute
	// sweepEvery is how often loose blobs are looked for. They wait a day; a minute more is nothing.
	sweepEvery = time.Minute
)

// Unfinished is the list of what commits left to do.
type Unfinished interface {
	Unfanned(ctx context.Context, limit int) ([]todo.Operation, error)
	Erasures(ctx context.Context, limit int) ([]todo.Erasure, error)
	CleanableDeletions(ctx context.Context, behind *todo.Deletion, limit int) ([]todo.Deletion, error)
	LooseBlobs(ctx context.Context, at, early time.Time, limit int) ([]todo.Blob, error)
	BlobsOf(ctx context.Context, dataPoints []uuid.UUID) ([]string, error)
	BatchesOf(ctx context.Context, dataPoints []uuid.UUID) ([]todo.Batch, error)
	Copied(ctx context.Context, projects, ids []uuid.UUID) (map[uuid.UUID]bool, error)
	Open(ctx context.Context) (todo.Open, error)
	commands.SendTimes
}

// Finisher completes fan-outs that a crash left, erases what was deleted and sweeps what nothing refers to. It runs also where
// derivation is switched off.
type Finisher struct {
	Log  *commands.Log
	List Unfinished
	// Identities is nil where no identities are written.
	Identities Identities
	Progress   Progress
	Logger     *slog.Logger
	Now        func() time.Time
	// Tables, Index and Store remove what was deleted from the disk, before a deletion is said to be cleaned. Store is nil where
	// the log is a cluster's, whose own scavenge does it. The other two may be nil in tests.
	Tables Tables
	Index  Index
	Store  Physical

	// HasIndex reports whether this process feeds the index that Index removes from; nil is always.
	HasIndex func() bool
	// Reservations are dropped once they count no longer; nil where nothing is reserved.
	Reservations Reservations

	// Aside reports whether an operator has set aside the event at a position; nil if no event is.
	Aside func(eventstore.Position) bool

	// Beside are projections that keep something of what was deleted, beside those that every service has.
	Beside []string

	stuck stuckList
	// completing and erasing are held by the round at work of each loop: one that an operator asked for, or one of Run's.
	completing, erasing sync.Mutex
	// What follows is under erasing. Times are those before which the next one is not due.
	cleanAt, sweepAt time.Time
	slept            sleepWatch
	// parked are deletions that were purged and wait for something else.
	parked map[uuid.UUID]bool
	// cut are the removals of identities whose text is known to be cut off, by the record; parkedRemovals those of them that wait.
	cut, parkedRemovals map[uuid.UUID]eventstore.Revision
}

// CatchUp completes every fan-out that stands open, whoever left it: before writes are taken, the projections being at the head.
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
		open, err := f.List.Unfanned(ctx, finishSize+len(left))
		if err != nil {
			return err
		}
		worked := false
		for _, op := range open {
			if left[op.ID] {
				continue
			}
			deletion := op.Family == stream.Deletion
			if f.isAside(op) || !deletion && deleting[op.ProjectID] {
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
				f.Logger.ErrorContext(ctx, "a batch cannot be fanned out", "send", op.ID, "err", err)
				left[op.ID] = true
			}
		}
		if !worked {
			return nil
		}
		head, err := f.Log.Store.Head(ctx)
		if err != nil {
			return err
		}
		if err := f.Progress.Wait(ctx, head, dataPoints); err != nil {
			return err
		}
	}
}

// Run finishes until the context ends. Fan-outs have a loop of their own: a purge or a scavenge may take half an hour, and what
// was deleted meanwhile must not be visible for so long.
func (f *Finisher) Run(ctx context.Context) error {
	f.erasing.Lock()
	f.slept.rest() // read the clocks for the first time
	f.erasing.Unlock()
	var loops sync.WaitGroup
	loops.Go(func() { f.loop(ctx, f.complete) })
	loops.Go(func() { f.loop(ctx, f.eraseRound) })
	loops.Wait()
	return nil
}

// loop repeats a round until the context ends.
func (f *Finisher) loop(ctx context.Context, round func(ctx context.Context, all bool, done *Erasure) time.Duration) {
	moved, stop := f.Progress.Watch(dataPoints)
	defer stop()
	for ctx.Err() == nil {
		var done Erasure
		next := idlePoll
		_ = panics.Call(ctx, f.Logger, "finisher panicked", func() error { // it is logged, and the round comes again
			next = round(ctx, false, &done)
			return nil
		})
		done.log(ctx, f.Logger)
		await(ctx, moved, next)
		// What is to finish is seldom and never urgent: one look a moment is enough, however much else moves.
		await(ctx, nil, idlePoll)
	}
}

// round is both rounds, one after the other.
func (f *Finisher) round(ctx context.Context, all bool, done *Erasure) {
	f.complete(ctx, all, done)
	f.eraseRound(ctx, all, done)
}

// complete completes fan-outs and drops reservations: what is due, or with all whatever can be done now. It returns after what time
// there may be something to do again though nothing moves; what it did is added to done.
func (f *Finisher) complete(ctx context.Context, all bool, done *Erasure) (next time.Duration) {
	f.completing.Lock()
	defer f.completing.Unlock()
	return f.steps(ctx, done, []step{
		{"fan-outs", func() (time.Duration, error) { return f.fanOuts(ctx, all) }},
		{"bulk writes", func() (time.Duration, error) { return f.bulks(ctx, all) }},
		{"reservations", func() (time.Duration, error) { return f.dropReservations(ctx) }},
	})
}

// eraseRound erases what was deleted or removed, and sweeps, as complete does its part.
func (f *Finisher) eraseRound(ctx context.Context, all bool, done *Erasure) (next time.Duration) {
	f.erasing.Lock()
	defer f.erasing.Unlock()
	return f.steps(ctx, done, []step{
		{"identities", func() (time.Duration, error) { return f.cutDue(ctx, all) }},
		{"facts", func() (time.Duration, error) { return 0, f.keepFacts(ctx) }},
		// What is swept lets deletions be cleaned that wait for it.
		{"sweep", func() (time.Duration, error) { return f.sweep(ctx, all, done) }},
		{"cleaning", func() (time.Duration, error) { return f.clean(ctx, all, done) }},
	})
}

// step is a part of a round. It returns after what time it may have something to do again, 0 for no such time.
type step struct {
	name string
	do   func() (time.Duration, error)
}

// steps does one step after the other. What fails is left to the next round, and holds up no other step.
func (f *Finisher) steps(ctx context.Context, done *Erasure, steps []step) (next time.Duration) {
	next = sweepEvery
	for _, s := range steps {
		var wait time.Duration
		err := panics.Call(ctx, f.Logger, "finisher step panicked", func() (err error) { wait, err = s.do(); return err }, "step", s.name)
		if err != nil && ctx.Err() == nil {
			done.fail(s.name, err)
			wait = idlePoll
		}
		if wait > 0 {
			next = min(next, wait)
		}
	}
	return next
}

// fanOuts completes what its process left long enough ago.
func (f *Finisher) fanOuts(ctx context.Context, all bool) (wait time.Duration, err error) {
	open, err := f.List.Unfanned(ctx, finishSize+f.stuck.count())
	if err != nil {
		return 0, err
	}
	var errs []error
	worked := false
	// Deletions come first in the list. While one of a project is open, no batch of that is resumed: what it deletes must not come
	// alive before.
	deleting := make(map[uuid.UUID]bool)
	for _, op := range open {
		if f.isAside(op) {
			continue
		}
		if !all && f.stuck.resting(op.ID, f.Now()) {
			deleting[op.ProjectID] = true
			continue
		}
		left := finishAfter - f.Now().Sub(op.AcceptedAt)
		if left > 0 && !all {
			deleting[op.ProjectID] = deleting[op.ProjectID] || op.Family == stream.Deletion
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		if op.Family != stream.Deletion && deleting[op.ProjectID] {
			continue
		}
		worked = true
		if err := f.attempt(ctx, op); err != nil {
			deleting[op.ProjectID] = deleting[op.ProjectID] || op.Family == stream.Deletion
			errs = append(errs, fmt.Errorf("%s %s: %w", op.Family, op.ID, err))
		}
	}
	if worked && len(errs) == 0 {
		wait = idlePoll // there may be more of them
		errs = append(errs, f.passHead(ctx, dataPoints))
	}
	return wait, errors.Join(errs...)
}

// keepFacts keeps the facts of everything that a fanned-out deletion took.
func (f *Finisher) keepFacts(ctx context.Context) error {
	for ctx.Err() == nil {
		erasures, err := f.List.Erasures(ctx, cleanSize)
		if err != nil || len(erasures) == 0 {
			return err
		}
		// The retained facts of a send must reflect the whole log, even while the list is being
		// rebuilt.
		if err := f.passHead(ctx, dataPoints); err != nil {
			return err
		}
		byDeletion := make(map[uuid.UUID][]uuid.UUID)
		for _, e := range erasures {
			byDeletion[e.DeletionID] = append(byDeletion[e.DeletionID], e.DataPoint)
		}
		var group errgroup.Group
		group.SetLimit(finishWidth)
		for id, taken := range byDeletion {
			group.Go(func() error {
				return f.bounded(ctx, func(ctx context.Context) error { return f.Log.KeepFacts(ctx, f.List, id, taken) })
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		// The list must show what was done before it is worked on again.
		if err := f.passHead(ctx, dataPoints); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// passHead waits until projections are where the log is now.
func (f *Finisher) passHead(ctx context.Context, projections ...string) error {
	return f.bounded(ctx, func(ctx context.Context) error {
		head, err := f.Log.Store.Head(ctx)
		if err != nil {
			return err
		}
		return f.Progress.Wait(ctx, head, projections...)
	})
}

func (f *Finisher) resume(ctx context.Context, op todo.Operation) error {
	return f.bounded(ctx, func(ctx context.Context) error {
		if op.Family == stream.Deletion {
			_, err := f.Log.ResumeDeletion(ctx, op.ID, f.Now())
			return err
		}
		return f.Log.ResumeBatch(ctx, op.ID, f.Now())
	})
}

// bounded does a piece of work within finishTimeout. A panic is its error, and is logged.
func (f *Finisher) bounded(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	return panics.Call(ctx, f.Logger, "finisher panicked", func() error { return work(ctx) })
}
