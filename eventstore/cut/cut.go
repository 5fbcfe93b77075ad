// Package cut finds streams whose events somebody else hid in the store, by a soft deletion, a truncation, an age or a
// count, and shows their events again.
//
// Nothing of ours hides events, but the removal of an identity, which truncates its stream. What was hidden is recalled
// as before, since recall reads tables, but a stream whose end cannot be read takes no send and no deletion, and one
// whose first events cannot be read misleads what decides on them. A scavenge keeps the last event of a stream, which
// is all that writers of data points need.
package cut

import (
	"context"
	"errors"
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

// restorable are the categories whose streams are restored. An identity is truncated by the service itself.
var restorable = []string{
	stream.DataPoint, stream.Memory, stream.Ingestion, stream.Deletion, stream.Bulk, stream.Audiences, stream.Usage,
	stream.Project, stream.Organization, stream.Person, stream.Pipeline,
}

// Store is a store that restores a stream of ours when it reads as empty, or as without its first events, and events
// are hidden. That costs one more read of a stream without events. The stream of a send is read before its first event,
// for the idempotency key, so it is looked at only once an append finds that it has events.
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
	if errors.Is(err, eventstore.ErrConflict) && expected == eventstore.NoStream && isSend(name) {
		// Who reads the stream now, and finds nothing, would append in the same way without end.
		if _, restoreErr := s.restore(ctx, name); restoreErr != nil {
			return done, restoreErr
		}
	}
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
	for range restores {
		if err != nil || !lacksEvents(read, from, direction) || len(read) == 0 && isSend(name) {
			break
		}
		hidden, restoreErr := s.restore(ctx, name)
		if restoreErr != nil {
			return nil, restoreErr
		}
		if !hidden {
			break
		}
		read, err = s.Store.Read(ctx, name, from, direction, limit)
	}
	return read, err
}

func isSend(name string) bool { return stream.Category(name) == stream.Ingestion }

// lacksEvents reports whether a read found less than a whole stream has. No event after the last one is usual.
func lacksEvents(read []eventstore.Recorded, from eventstore.Revision, direction eventstore.Direction) bool {
	if direction == eventstore.Backwards {
		return len(read) == 0
	}
	return from == 0 && (len(read) == 0 || read[0].Revision > 0)
}

// restore shows the events of a stream again. hidden is false if none are hidden.
func (s *Store) restore(ctx context.Context, name string) (hidden bool, err error) {
	if !slices.Contains(restorable, stream.Category(name)) {
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
