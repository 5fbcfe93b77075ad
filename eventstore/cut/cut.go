// Package cut finds streams whose events somebody else hid in the store, by a soft deletion, a truncation, an age or a
// count, and shows their events again.
//
// Nothing of ours hides events of a data point or its memories: they end with a tombstone. What was hidden is recalled
// as before, since recall reads tables, but a stream whose end cannot be read takes no send and no deletion. A scavenge
// keeps the last event of a stream, and that is all that writers need.
package cut

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

const (
	// MaxNamed is the most streams that a process names.
	MaxNamed = 100
	// restores is how often a stream is restored for one read. The first write to the metadata of a soft-deleted stream
	// makes it a truncated one.
	restores = 2
)

// Store is a store that restores a stream of a data point or of its memories when it reads as empty, and events are
// hidden. That costs one more read of a stream without events.
type Store struct {
	eventstore.Store
	logger *slog.Logger

	mu    sync.Mutex
	named map[string]struct{}
}

// New wraps a store.
func New(store eventstore.Store, logger *slog.Logger) *Store {
	return &Store{Store: store, logger: logger, named: map[string]struct{}{}}
}

// Restored returns the names of the streams that this process restored, in order: the first MaxNamed of them.
func (s *Store) Restored() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.named))
}

// Append implements eventstore.Store. A store takes an append to a stream that was soft-deleted as if the stream had no
// events, and lets it go on at its next revision. For a data point that is a conflict: readers pass over the stray
// event, and those before it are shown again.
func (s *Store) Append(
	ctx context.Context, name string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	done, err := s.Store.Append(ctx, name, expected, events)
	if err != nil || expected != eventstore.NoStream || done.Revision < eventstore.Revision(len(events)) ||
		stream.Category(name) != stream.DataPoint {
		return done, err
	}
	if _, err := s.restore(ctx, name); err != nil {
		return eventstore.Appended{}, fmt.Errorf("%w: %w", eventstore.ErrUnknown, err)
	}
	return eventstore.Appended{}, fmt.Errorf("append to %s, which was soft-deleted: %w", name, eventstore.ErrConflict)
}

// ReadLast implements eventstore.Store.
func (s *Store) ReadLast(ctx context.Context, name string) (last eventstore.Recorded, ok bool, err error) {
	if last, ok, err = s.Store.ReadLast(ctx, name); ok || err != nil {
		return last, ok, err
	}
	for range restores {
		if hidden, err := s.restore(ctx, name); err != nil || !hidden {
			return last, false, err
		}
		if last, ok, err = s.Store.ReadLast(ctx, name); ok || err != nil {
			break
		}
	}
	return last, ok, err
}

// Read implements eventstore.Store.
func (s *Store) Read(
	ctx context.Context, name string, from eventstore.Revision, direction eventstore.Direction, limit int,
) ([]eventstore.Recorded, error) {
	read, err := s.Store.Read(ctx, name, from, direction, limit)
	if err != nil || len(read) > 0 || from > 0 && direction == eventstore.Forwards {
		return read, err // no event after the last one is usual
	}
	for range restores {
		if hidden, err := s.restore(ctx, name); err != nil || !hidden {
			return nil, err
		}
		if read, err = s.Store.Read(ctx, name, from, direction, limit); len(read) > 0 || err != nil {
			break
		}
	}
	return read, err
}

// restore shows the events of a stream again. hidden is false if none are hidden.
func (s *Store) restore(ctx context.Context, name string) (hidden bool, err error) {
	if of := stream.Category(name); of != stream.DataPoint && of != stream.Memory {
		return false, nil
	}
	if hidden, err = s.Store.Restore(ctx, name); err != nil || !hidden {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.named[name]; known {
		return true, nil
	}
	if len(s.named) < MaxNamed {
		s.named[name] = struct{}{}
	}
	s.logger.WarnContext(ctx, "somebody deleted, truncated or aged a stream in the event store: that is undone, so that "+
		"it can be written; what a scavenge removed is lost to trace and lineage", "stream", name)
	return true, nil
}
