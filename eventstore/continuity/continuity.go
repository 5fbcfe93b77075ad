// Package continuity notices that the log went back: that an event store was put back from an older copy while
// processes use it, or between two starts of them.
//
// A Store remembers the newest events that it saw in the log. It compares the log with them at each new subscription,
// after a subscription has ended, when an append is answered with a position that the log had passed before, and
// whenever Check is called. Once the log lacks such an event, the Store fails until the process ends: what it saw and
// what the store has are two histories, and only an operator knows which one counts.
package continuity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

// kept bounds the events that are remembered of each kind. More than one is needed only while the newest ones are
// removed from the log.
const kept = 16

// checkTimeout bounds one comparison.
const checkTimeout = 10 * time.Second

// DefaultPatience is how long a log may end before an event that was seen, before that counts as an older copy. The
// member that led a cluster until now may show an old end until it notices that another one leads.
const DefaultPatience = 10 * time.Second

// Store is an eventstore.Store that fails once the log went back. It is safe for concurrent use.
type Store struct {
	eventstore.Store
	logger   *slog.Logger
	patience time.Duration
	// comparing holds a token during a comparison.
	comparing chan struct{}

	mu sync.Mutex
	// applied are the newest events that a subscription delivered or a projection has applied, appended those of
	// answers. They are compared separately: an append to an older copy may be answered before it is noticed.
	applied, appended newest
	// head is the newest position that was read.
	head eventstore.Position
	// doubtful is true after a subscription ended: another server may answer now.
	doubtful bool
	// shortSince is since when the log ends before an event that was seen, zero if it does not.
	shortSince time.Time
	older      *eventstore.OlderCopyError
}

// New returns a Store over another one. patience is DefaultPatience except in tests.
func New(store eventstore.Store, patience time.Duration, logger *slog.Logger) *Store {
	return &Store{Store: store, patience: patience, logger: logger, comparing: make(chan struct{}, 1)}
}

// Err returns an eventstore.OlderCopyError once the log went back, nil before.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.older == nil {
		return nil
	}
	return s.older
}

// Applied records an event that a projection has applied, in this process or in another one.
func (s *Store) Applied(at eventstore.Position, id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied.add(at, id)
}

// Check compares the log with what was seen. It returns an eventstore.OlderCopyError if the log went back, another
// error if that is not known.
func (s *Store) Check(ctx context.Context) error { return s.check(ctx, func() bool { return true }) }

// check is Check, if it is still needed when no other comparison runs.
func (s *Store) check(ctx context.Context, needed func() bool) error {
	select {
	case s.comparing <- struct{}{}:
		defer func() { <-s.comparing }()
	case <-ctx.Done():
		return fmt.Errorf("compare the log: %w", context.Cause(ctx))
	}
	if err := s.Err(); err != nil || !needed() {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return s.compare(ctx)
}

// compare compares the log with what was seen before the call. The caller holds the token.
func (s *Store) compare(ctx context.Context) error {
	s.mu.Lock()
	applied, appended := slices.Clone(s.applied.events), slices.Clone(s.appended.events)
	seen := s.newest()
	s.mu.Unlock()
	head, err := s.Store.Head(ctx)
	if err != nil {
		return err
	}
	if head < seen {
		return s.endsBefore(ctx, head, seen)
	}
	for _, events := range [][]event{applied, appended} {
		missing, err := s.missing(ctx, events)
		if err != nil {
			return err
		}
		if missing > 0 {
			return s.stop(ctx, &eventstore.OlderCopyError{Head: head, Applied: missing})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubtful, s.shortSince = false, time.Time{}
	return nil
}

// missing returns the position of an event that the log never had, 0 if it has the newest one that was not removed.
func (s *Store) missing(ctx context.Context, events []event) (eventstore.Position, error) {
	for _, e := range slices.Backward(events) {
		at, found, err := s.Store.ReadAt(ctx, e.position)
		switch {
		case errors.Is(err, eventstore.ErrNoEvent), found && at.ID != e.id:
			return e.position, nil
		case err != nil:
			return 0, err
		case found:
			return 0, nil
		}
	}
	return 0, nil
}

// endsBefore returns the error of a log that ends before an event that was seen.
func (s *Store) endsBefore(ctx context.Context, head, seen eventstore.Position) error {
	s.mu.Lock()
	s.doubtful = true
	if s.shortSince.IsZero() {
		s.shortSince = time.Now()
	}
	waited := time.Since(s.shortSince)
	s.mu.Unlock()
	if waited < s.patience {
		return fmt.Errorf("%w: the log ends at position %d, and position %d was seen: another member may lead",
			eventstore.ErrUnavailable, head, seen)
	}
	return s.stop(ctx, &eventstore.OlderCopyError{Head: head, Applied: seen})
}

// stop makes every later call fail.
func (s *Store) stop(ctx context.Context, older *eventstore.OlderCopyError) error {
	s.mu.Lock()
	s.older = older
	s.mu.Unlock()
	s.logger.ErrorContext(ctx, "the log went back: every call is refused until an operator has decided how to go on",
		"err", older)
	return older
}

// newest is the newest position that was seen. The caller holds the lock.
func (s *Store) newest() eventstore.Position {
	return max(s.head, s.applied.newest(), s.appended.newest())
}

// begin returns the newest position that was seen, once the log is known to be the same.
func (s *Store) begin(ctx context.Context) (eventstore.Position, error) {
	s.mu.Lock()
	newest, doubtful, older := s.newest(), s.doubtful, s.older
	s.mu.Unlock()
	if older != nil {
		return 0, older
	}
	if !doubtful {
		return newest, nil
	}
	return newest, s.check(ctx, s.isDoubtful)
}

func (s *Store) isDoubtful() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doubtful
}

// doubt makes the next call compare the log first.
func (s *Store) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubtful = true
}

// event is an event that was seen.
type event struct {
	position eventstore.Position
	id       uuid.UUID
}

// newest are the newest events, the last one the newest.
type newest struct{ events []event }

func (n *newest) add(at eventstore.Position, id uuid.UUID) {
	if at <= n.newest() {
		return
	}
	if len(n.events) == kept {
		n.events = append(n.events[:0], n.events[1:]...)
	}
	n.events = append(n.events, event{at, id})
}

func (n *newest) newest() eventstore.Position {
	if len(n.events) == 0 {
		return 0
	}
	return n.events[len(n.events)-1].position
}

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
