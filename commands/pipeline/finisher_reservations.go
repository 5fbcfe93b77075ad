package pipeline

import (
	"context"
	"time"

	"github.com/annals-project/annals/internal/todo"
)

// Reservations are what sends under way hold of the limits of their organizations.
type Reservations interface {
	// DropFacts removes those whose sends are facts. next is after what time the first of the rest is due, 0 where none is left.
	DropFacts(ctx context.Context) (next time.Duration, err error)
	// Overdue are those whose sends are appended by now or never will be.
	Overdue(ctx context.Context, limit int) ([]todo.Reservation, error)
	// Drop removes some, whatever became of their sends.
	Drop(ctx context.Context, some []todo.Reservation) error
}

// dropReservations removes what no longer counts: what became facts, and what nothing became of.
//
// What is overdue may have been appended in its last moment. It is removed only once the projection has passed a head that was
// read after that: then its send is a fact, or there is none.
func (f *Finisher) dropReservations(ctx context.Context) (wait time.Duration, err error) {
	if f.Reservations == nil {
		return 0, nil
	}
	next, err := f.Reservations.DropFacts(ctx)
	if err != nil || next == 0 {
		return 0, err
	}
	for ctx.Err() == nil {
		overdue, err := f.Reservations.Overdue(ctx, cleanSize)
		if err != nil {
			return 0, err
		}
		if len(overdue) == 0 {
			break
		}
		if err := f.passHead(ctx, dataPoints); err != nil {
			return 0, err
		}
		if err := f.Reservations.Drop(ctx, overdue); err != nil {
			return 0, err
		}
	}
	return next, nil
}
