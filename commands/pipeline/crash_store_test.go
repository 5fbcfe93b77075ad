package pipeline

import (
	"context"
	"errors"

	"github.com/annals-project/annals/eventstore"
)

// victim is a store that dies at one of its writes: before it is stored, or after, without an answer.
type victim struct {
	eventstore.Store
	left   int
	stored bool
	died   bool
}

var errDied = errors.New("killed")

// write counts a write; do is called where it is to be stored.
func (v *victim) write(do func() error) error {
	switch {
	case v.died:
		return errDied
	case v.left > 0:
		v.left--
		return do()
	default:
		v.died = true
		if v.stored {
			return errors.Join(errDied, do())
		}
		return errDied
	}
}

func (v *victim) Append(ctx context.Context, name string, expected eventstore.Revision,
	events []eventstore.Proposed,
) (done eventstore.Appended, err error) {
	err = v.write(func() (err error) {
		done, err = v.Store.Append(ctx, name, expected, events)
		return err
	})
	return done, err
}

func (v *victim) Tombstone(ctx context.Context, name string, expected eventstore.Revision) (at eventstore.Position,
	err error,
) {
	err = v.write(func() (err error) {
		at, err = v.Store.Tombstone(ctx, name, expected)
		return err
	})
	return at, err
}

func (v *victim) Truncate(ctx context.Context, name string, before eventstore.Revision) error {
	return v.write(func() error { return v.Store.Truncate(ctx, name, before) })
}

// serial is a store that takes one write at a time, so that the steps of an operation have an order.
type serial struct {
	*victim
	turn chan struct{}
}

func (s serial) Append(ctx context.Context, name string, expected eventstore.Revision,
	events []eventstore.Proposed,
) (eventstore.Appended, error) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	return s.victim.Append(ctx, name, expected, events)
}

func (s serial) Tombstone(ctx context.Context, name string, expected eventstore.Revision) (eventstore.Position, error) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	return s.victim.Tombstone(ctx, name, expected)
}

func (s serial) Truncate(ctx context.Context, name string, before eventstore.Revision) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	return s.victim.Truncate(ctx, name, before)
}
