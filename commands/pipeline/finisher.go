package pipeline

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/todo"
)

const (
	finishSize = 64
	// finishAfter is how long a committed operation is left to the process that committed it.
	finishAfter = 15 * time.Second
	// finishTimeout bounds one piece of the finisher's work.
	finishTimeout = time.Minute
)

// Unfinished is the list of what commits left to do.
type Unfinished interface {
	Unfanned(ctx context.Context, limit int) ([]todo.Operation, error)
	Erasures(ctx context.Context, limit int) ([]todo.Erasure, error)
	CleanableDeletions(ctx context.Context, limit int) ([]todo.Deletion, error)
}

// Finisher completes fan-outs that a crash left, and erases what was deleted. It runs also where derivation is switched off.
type Finisher struct {
	Log      *commands.Log
	List     Unfinished
	Progress Progress
	Logger   *slog.Logger
	Now      func() time.Time
}

// CatchUp completes every fan-out that stands open, whoever left it: before writes are taken, the projections being at the head.
//
// What was deleted must not be seen again, so a deletion that cannot be completed is an error. A batch that cannot is left to
// the later rounds: it concerns its own send alone.
func (f *Finisher) CatchUp(ctx context.Context) error {
	left := make(map[uuid.UUID]bool)
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
			worked = true
			err := f.resume(ctx, op)
			if err != nil && op.Family == stream.Deletion {
				return err
			}
			if err != nil {
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

// Run finishes until the context ends.
func (f *Finisher) Run(ctx context.Context) error {
	moved, stop := f.Progress.Watch(dataPoints)
	defer stop()
	for ctx.Err() == nil {
		if worked := f.round(ctx); !worked {
			await(ctx, moved, idlePoll)
			// What is to finish is seldom and never urgent: one look a moment is enough, however much else moves.
			await(ctx, nil, idlePoll/4)
		}
	}
	return nil
}

// round does one piece of each kind of work; worked is false where there was none.
func (f *Finisher) round(ctx context.Context) bool {
	worked := false
	step := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			f.Logger.WarnContext(ctx, "left for the next round", "work", what, "err", err)
		}
	}
	open, err := f.List.Unfanned(ctx, finishSize)
	step("fan-outs", err)
	for _, op := range open {
		if f.Now().Sub(op.AcceptedAt) < finishAfter {
			continue
		}
		step("fan-out", f.resume(ctx, op))
	}
	erasures, err := f.List.Erasures(ctx, finishSize)
	step("erasures", err)
	byDeletion := make(map[uuid.UUID][]uuid.UUID)
	var last eventstore.Position
	for _, e := range erasures {
		byDeletion[e.DeletionID] = append(byDeletion[e.DeletionID], e.DataPoint)
	}
	for id, dataPoints := range byDeletion {
		step("facts", f.bounded(ctx, func(ctx context.Context) error { return f.Log.KeepFacts(ctx, id, dataPoints) }))
		worked = true
	}
	cleanable, err := f.List.CleanableDeletions(ctx, finishSize)
	step("deletions", err)
	for _, d := range cleanable {
		step("cleaning", f.bounded(ctx, func(ctx context.Context) error {
			return f.Log.Clean(ctx, d.ID, func(ctx context.Context, position eventstore.Position) error {
				return f.Progress.Wait(ctx, position, dataPoints, memories, recallIndex)
			}, f.Now())
		}))
		worked = true
	}
	if worked {
		// The lists must show what was done before they are worked on again.
		if last, err = f.Log.Store.Head(ctx); err == nil {
			err = f.bounded(ctx, func(ctx context.Context) error { return f.Progress.Wait(ctx, last, dataPoints) })
		}
		step("lists", err)
		worked = err == nil
	}
	return worked
}

func (f *Finisher) resume(ctx context.Context, op todo.Operation) error {
	return f.bounded(ctx, func(ctx context.Context) error {
		if op.Family == stream.Deletion {
			return f.Log.ResumeDeletion(ctx, op.ID)
		}
		return f.Log.ResumeBatch(ctx, op.ID)
	})
}

func (f *Finisher) bounded(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	return work(ctx)
}
