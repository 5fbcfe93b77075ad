package continuity

import (
	"context"
	"errors"
	"fmt"

	"github.com/annals-project/annals/eventstore"
)

// Append implements eventstore.Store.
func (s *Store) Append(
	ctx context.Context, stream string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	var done eventstore.Appended
	at, err := s.write(ctx, "append to "+stream, func() (eventstore.Position, error) {
		var err error
		done, err = s.Store.Append(ctx, stream, expected, events)
		return done.Position, err
	})
	if err != nil {
		return eventstore.Appended{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appended.add(at, events[len(events)-1].ID)
	return done, nil
}

// Delete implements eventstore.Store.
func (s *Store) Delete(
	ctx context.Context, stream string, expected eventstore.Revision,
) (eventstore.Position, error) {
	return s.write(ctx, "delete "+stream, func() (eventstore.Position, error) {
		return s.Store.Delete(ctx, stream, expected)
	})
}

// Tombstone implements eventstore.Store.
func (s *Store) Tombstone(
	ctx context.Context, stream string, expected eventstore.Revision,
) (eventstore.Position, error) {
	return s.write(ctx, "tombstone "+stream, func() (eventstore.Position, error) {
		return s.Store.Tombstone(ctx, stream, expected)
	})
}

// Truncate implements eventstore.Store.
func (s *Store) Truncate(ctx context.Context, stream string, before eventstore.Revision) error {
	if _, err := s.begin(ctx); err != nil {
		return unknown("truncate "+stream, err)
	}
	return s.Store.Truncate(ctx, stream, before)
}

// Restore implements eventstore.Store.
func (s *Store) Restore(ctx context.Context, stream string) (bool, error) {
	if _, err := s.begin(ctx); err != nil {
		return false, unknown("restore "+stream, err)
	}
	return s.Store.Restore(ctx, stream)
}

// write makes a write and returns its position. A write that follows everything that was seen is after it in the log,
// unless the same write happened before. So another position is compared before the write is acknowledged.
func (s *Store) write(
	ctx context.Context, what string, call func() (eventstore.Position, error),
) (eventstore.Position, error) {
	seen, err := s.begin(ctx)
	if err != nil {
		return 0, unknown(what, err)
	}
	at, err := call()
	if err != nil || at > seen {
		return at, err
	}
	if err := s.Check(ctx); err != nil {
		return 0, unknown(what, err)
	}
	return at, nil
}

// unknown returns the error of a write before or after which the log could not be compared: it may be repeated until
// the store answers, as after any lost connection. A log that went back ends the tries.
func unknown(what string, err error) error {
	if _, older := errors.AsType[*eventstore.OlderCopyError](err); older || !errors.Is(err, eventstore.ErrUnavailable) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w: %w", what, eventstore.ErrUnknown, err)
}

// ReadAll implements eventstore.Store.
func (s *Store) ReadAll(
	ctx context.Context, after eventstore.Position, limit int,
) ([]eventstore.Recorded, error) {
	if _, err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	return s.Store.ReadAll(ctx, after, limit)
}

// Head implements eventstore.Store. An end before what was seen is an error: an event that was acknowledged before the
// call would be above it.
func (s *Store) Head(ctx context.Context) (eventstore.Position, error) {
	if err := s.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	seen := s.newest()
	s.mu.Unlock()
	head, err := s.Store.Head(ctx)
	if err != nil {
		return 0, err
	}
	if head < seen {
		return 0, s.endsBefore(ctx, head, seen)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head = max(s.head, head)
	return head, nil
}

// Subscribe implements eventstore.Store.
func (s *Store) Subscribe(ctx context.Context, after eventstore.Position) (eventstore.Subscription, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	sub, err := s.Store.Subscribe(ctx, after)
	if err != nil {
		return nil, err
	}
	// Compare only now: if the store is put back after this, the subscription ends.
	if err := s.compareFor(ctx, after); err != nil {
		return nil, errors.Join(err, sub.Close())
	}
	return &subscription{sub, s}, nil
}

// compareFor compares the log for a subscription after a position, and remembers the event at it.
func (s *Store) compareFor(ctx context.Context, after eventstore.Position) error {
	if err := s.Check(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	known := s.applied.newest() >= after
	s.mu.Unlock()
	if known || after == 0 {
		return nil
	}
	at, found, err := s.Store.ReadAt(ctx, after)
	if err == nil && found {
		s.Applied(at.Position, at.ID)
	}
	return err
}

// subscription remembers what it delivers.
type subscription struct {
	eventstore.Subscription
	store *Store
}

// Next implements eventstore.Subscription.
func (sub *subscription) Next(ctx context.Context) (eventstore.Recorded, error) {
	r, err := sub.Subscription.Next(ctx)
	if err != nil {
		sub.store.doubt()
		return r, err
	}
	sub.store.Applied(r.Position, r.ID)
	return r, nil
}
