package esdb

import (
	"context"
	"fmt"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/annals-project/annals/eventstore"
)

// usualReadSize is the initial capacity, in events, of a read of the log.
const usualReadSize = 512

// allStream is the name of the whole log in lists of rights.
const allStream = "$all"

// ReadAll implements eventstore.Store.
func (s *Store) ReadAll(ctx context.Context, after eventstore.Position, limit int) ([]eventstore.Recorded, error) {
	if limit <= 0 {
		return nil, nil
	}
	// Read one event more: the read includes the event at the position itself, which is dropped.
	events, err := s.readLog(ctx, driver.Forwards, allPosition(after), after, limit, uint64(limit)+1)
	if err != nil {
		return nil, readError(ctx, "read the log", nameRight(err, eventstore.MayRead, allStream))
	}
	return events, nil
}

// ReadAt implements eventstore.Store.
func (s *Store) ReadAt(ctx context.Context, at eventstore.Position) (eventstore.Recorded, bool, error) {
	if at == 0 {
		return eventstore.Recorded{}, false, nil
	}
	events, err := s.readLog(ctx, driver.Forwards, allPosition(at), 0, 1, 1)
	if classify(err) == badPosition {
		// A server that has removed an event continues at the next one without an error.
		return eventstore.Recorded{}, false, fmt.Errorf("read the log at %d: %w", at, eventstore.ErrNoEvent)
	}
	if err != nil {
		return eventstore.Recorded{}, false, readError(ctx, "read the log", nameRight(err, eventstore.MayRead, allStream))
	}
	if len(events) == 0 || events[0].Position != at {
		return eventstore.Recorded{}, false, nil
	}
	return events[0], true, nil
}

// Head implements eventstore.Store. The newest event is often one of the system, which readers of
// the whole log reach as well.
func (s *Store) Head(ctx context.Context) (eventstore.Position, error) {
	events, err := s.readLog(ctx, driver.Backwards, driver.End{}, 0, 1, 1)
	if err != nil {
		return 0, readError(ctx, "read the head of the log", nameRight(err, eventstore.MayRead, allStream))
	}
	if len(events) == 0 {
		return 0, nil
	}
	return events[0].Position, nil
}

// readLog reads count events of the log, without the one at skip. It returns at most limit of
// them, and not much more than eventstore.MaxPage bytes.
func (s *Store) readLog(
	ctx context.Context, direction driver.Direction, from driver.AllPosition, skip eventstore.Position, limit int,
	count uint64,
) ([]eventstore.Recorded, error) {
	opts := driver.ReadAllOptions{Direction: direction, From: from, RequiresLeader: true}
	return do(ctx, s.pool, isConnectionLost, func(ctx context.Context, c *driver.Client) ([]eventstore.Recorded, error) {
		read, err := c.ReadAll(ctx, opts, count)
		if err != nil {
			return nil, err
		}
		events := make([]eventstore.Recorded, 0, min(limit, usualReadSize))
		size := 0
		err = each(read, func(r eventstore.Recorded) bool {
			if r.Position != skip {
				events = append(events, r)
				size += r.Size()
			}
			return len(events) < limit && size < eventstore.MaxPage
		})
		return events, err
	})
}
