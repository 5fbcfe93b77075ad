package pipeline

import (
	"context"
	"time"

	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

// reservations are the limits that sends in progress hold.
type reservations interface {
	// DropFacts removes the reservations whose sends are projected. next is the time after which the
	// first of the rest is overdue, 0 if none is left.
	DropFacts(ctx context.Context) (next time.Duration, err error)
	// Overdue lists reservations whose sends are appended by now, or never will be.
	Overdue(ctx context.Context, limit int) ([]work.Reservation, error)
	// Drop removes reservations, whether or not their sends were appended.
	Drop(ctx context.Context, overdue []work.Reservation) error
}

// dropReservations removes the reservations of projected sends and those that are overdue.
//
// The send of an overdue reservation may have been appended in the last moment. The reservation is
// removed only once the projection has applied a head that was read after that: then the send is
// projected, or does not exist.
func (f *Finisher) dropReservations(ctx context.Context) (wait time.Duration, err error) {
	next, err := f.Reservations.DropFacts(ctx)
	if err != nil || next == 0 {
		return 0, err
	}
	for ctx.Err() == nil {
		overdue, err := f.Reservations.Overdue(ctx, finishSize)
		if err != nil {
			return 0, err
		}
		if len(overdue) == 0 {
			break
		}
		if err := f.waitHead(ctx, projection.DataPoints); err != nil {
			return 0, err
		}
		if err := f.Reservations.Drop(ctx, overdue); err != nil {
			return 0, err
		}
	}
	return next, nil
}
