package esdb

import (
	"context"
	"errors"
	"io"
	"math"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/annals-project/annals/eventstore"
)

// isConnectionLost reports whether the connection of a call was lost. A read is then repeated.
func isConnectionLost(why errorKind) bool {
	return why == unreachable || why == closedHere || why == leftServer
}

// Read implements eventstore.Store.
func (s *Store) Read(
	ctx context.Context, stream string, from eventstore.Revision, direction eventstore.Direction, limit int,
) ([]eventstore.Recorded, error) {
	if limit <= 0 || direction == eventstore.Backwards && from < 0 {
		return nil, nil
	}
	opts := driver.ReadStreamOptions{
		Direction:      driver.Forwards,
		From:           driver.Revision(uint64(max(from, 0))),
		RequiresLeader: true,
	}
	if direction == eventstore.Backwards {
		opts.Direction = driver.Backwards
		if from == math.MaxInt64 {
			opts.From = driver.End{}
		}
	}
	events, err := do(
		ctx,
		s.pool,
		isConnectionLost,
		func(ctx context.Context, c *driver.Client) ([]eventstore.Recorded, error) {
			read, err := c.ReadStream(ctx, stream, opts, uint64(limit))
			if err != nil {
				return nil, err
			}
			var events []eventstore.Recorded
			err = each(read, func(r eventstore.Recorded) bool { events = append(events, r); return true })
			return events, err
		},
	)
	if classify(err) == missing {
		return nil, nil
	}
	if err != nil {
		return nil, readError(ctx, "read "+stream, nameRight(err, eventstore.MayRead, stream))
	}
	return events, nil
}

// ReadLast implements eventstore.Store.
func (s *Store) ReadLast(ctx context.Context, stream string) (eventstore.Recorded, bool, error) {
	events, err := s.Read(ctx, stream, math.MaxInt64, eventstore.Backwards, 1)
	if err != nil || len(events) == 0 {
		return eventstore.Recorded{}, false, err
	}
	return events[0], true, nil
}

// each passes the events of a read to visit, until visit returns false or the read ends.
func each(read *driver.ReadStream, visit func(eventstore.Recorded) bool) error {
	defer read.Close()
	for {
		resolved, err := read.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if r, ok := recorded(resolved); ok && !visit(r) {
			return nil
		}
	}
}

// recorded converts an event; ok is false for a link to an event that no longer exists.
func recorded(resolved *driver.ResolvedEvent) (eventstore.Recorded, bool) {
	e := resolved.OriginalEvent()
	if e == nil {
		return eventstore.Recorded{}, false
	}
	return eventstore.Recorded{
		Stream:   e.StreamID,
		Revision: eventstore.Revision(e.EventNumber),
		Position: eventstore.Position(e.Position.Commit),
		ID:       e.EventID,
		Type:     e.EventType,
		Data:     e.Data,
		Meta:     e.UserMetadata,
		Created:  e.CreatedDate,
	}, true
}

// allPosition is where a read of the log begins. A forward read includes the event at the
// position, a backward read and a subscription do not.
func allPosition(after eventstore.Position) driver.AllPosition {
	if after == 0 {
		return driver.Start{}
	}
	return driver.Position{Commit: uint64(after), Prepare: uint64(after)}
}
