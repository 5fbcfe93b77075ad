package esdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
)

// noRetry allows no further repeats: do makes a write again only after an error that proves that it
// was not executed. See repeat for appends with an unknown outcome.
func noRetry(errorKind) bool { return false }

// Append implements eventstore.Store.
func (s *Store) Append(
	ctx context.Context, stream string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	what := "append to " + stream
	size, err := checkEvents(events)
	if err != nil {
		return eventstore.Appended{}, fmt.Errorf("%s: %w", what, err)
	}
	at, err := expectedRevision(expected)
	if err != nil {
		return eventstore.Appended{}, fmt.Errorf("%s: %w", what, err)
	}
	if err := ctx.Err(); err != nil {
		return eventstore.Appended{}, fmt.Errorf("%s: %w", what, err)
	}
	done, err := repeat(ctx, s.pool.ctx.Done(), func(ctx context.Context) (eventstore.Appended, error) {
		return s.appendOnce(ctx, stream, expected, at, events, size)
	})
	if err != nil {
		return eventstore.Appended{}, writeError(ctx, what, nameRight(err, eventstore.MayWrite, stream))
	}
	if done.Position == 0 || done.Position == noPosition {
		// A repeated append may return no position, but callers wait for the position.
		return s.findPosition(ctx, what, stream, done)
	}
	return done, nil
}

// appendOnce sends an append over the shared call and, unless it succeeds or times out there, as a
// separate call. Its errors are those of the driver.
func (s *Store) appendOnce(
	ctx context.Context, stream string, expected eventstore.Revision, at driver.ExpectedRevision,
	events []eventstore.Proposed, size int,
) (eventstore.Appended, error) {
	so := notSent
	if s.batches != nil {
		var done eventstore.Appended
		done, so = s.batches.append(ctx, stream, expected, events, size)
		switch so {
		case confirmed:
			return done, nil
		case timedOutTogether:
			return done, errTimedOut
		case notSent, unconfirmed:
		}
	}
	data := eventData(events)
	result, err := do(ctx, s.pool, noRetry, func(ctx context.Context, c *driver.Client) (*driver.WriteResult, error) {
		return c.AppendToStream(ctx, stream, driver.AppendToStreamOptions{ExpectedRevision: at, RequiresLeader: true},
			data...)
	})
	if err != nil {
		if so == unconfirmed && errors.Is(err, errClosed) {
			err = fmt.Errorf("%w: %w", errMaybeExecuted, err)
		}
		return eventstore.Appended{}, err
	}
	// The server numbers the events from the revision after expected. In a deleted stream it continues
	// after the deleted events.
	return eventstore.Appended{
		Revision: eventstore.Revision(result.NextExpectedVersion),
		Position: eventstore.Position(result.CommitPosition),
	}, nil
}

// noPosition is what a server sends if it does not know a position.
const noPosition = 1<<64 - 1

func (s *Store) findPosition(
	ctx context.Context, what, stream string, done eventstore.Appended,
) (eventstore.Appended, error) {
	events, err := s.Read(ctx, stream, done.Revision, eventstore.Forwards, 1)
	if err != nil {
		return eventstore.Appended{}, fmt.Errorf("%s: %w: %w", what, eventstore.ErrUnknown, err)
	}
	if len(events) == 0 || events[0].Revision != done.Revision {
		return eventstore.Appended{}, fmt.Errorf("%s: %w: it was stored before, but is no longer to be read", what,
			eventstore.ErrDeleted)
	}
	done.Position = events[0].Position
	return done, nil
}

// Delete implements eventstore.Store.
func (s *Store) Delete(ctx context.Context, stream string, expected eventstore.Revision) (eventstore.Position, error) {
	return s.endStream(ctx, "delete", stream, expected,
		func(ctx context.Context, c *driver.Client, at driver.ExpectedRevision) (*driver.DeleteResult, error) {
			return c.DeleteStream(ctx, stream, driver.DeleteStreamOptions{ExpectedRevision: at, RequiresLeader: true})
		},
	)
}

// Tombstone implements eventstore.Store.
func (s *Store) Tombstone(
	ctx context.Context, stream string, expected eventstore.Revision,
) (eventstore.Position, error) {
	return s.endStream(ctx, "tombstone", stream, expected,
		func(ctx context.Context, c *driver.Client, at driver.ExpectedRevision) (*driver.DeleteResult, error) {
			return c.TombstoneStream(ctx, stream, driver.TombstoneStreamOptions{ExpectedRevision: at, RequiresLeader: true})
		},
	)
}

func (s *Store) endStream(ctx context.Context, verb, stream string, expected eventstore.Revision,
	call func(context.Context, *driver.Client, driver.ExpectedRevision) (*driver.DeleteResult, error),
) (eventstore.Position, error) {
	what := verb + " " + stream
	at, err := expectedRevision(expected)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	result, err := do(
		ctx, s.pool, noRetry,
		func(ctx context.Context, c *driver.Client) (*driver.DeleteResult, error) { return call(ctx, c, at) },
	)
	if err != nil {
		return 0, writeError(ctx, what, nameRight(err, eventstore.MayDelete, stream))
	}
	return eventstore.Position(result.Position.Commit), nil
}

func expectedRevision(r eventstore.Revision) (driver.ExpectedRevision, error) {
	switch {
	case r == eventstore.NoStream:
		return driver.NoStream{}, nil
	case r < 0:
		return nil, fmt.Errorf("%d is no revision", r)
	default:
		return driver.Revision(uint64(r)), nil
	}
}

// checkEvents checks an append before anything is sent, and returns its size in bytes. A server
// that refuses an append for its size ends the call in the middle, and then the driver cannot
// return the reason.
func checkEvents(events []eventstore.Proposed) (size int, err error) {
	if len(events) == 0 {
		return 0, errors.New("no events")
	}
	for i, e := range events {
		if e.ID == uuid.Nil || e.Type == "" {
			return 0, fmt.Errorf("event %d has no id or no type", i)
		}
		size += e.Size()
	}
	if size > eventstore.MaxAppend {
		return 0, fmt.Errorf("%w: %d bytes of at most %d", eventstore.ErrTooLarge, size, eventstore.MaxAppend)
	}
	return size, nil
}

func eventData(events []eventstore.Proposed) []driver.EventData {
	data := make([]driver.EventData, len(events))
	for i, e := range events {
		content := driver.ContentTypeJson
		if e.Type == blob.ChunkType {
			content = driver.ContentTypeBinary
		}
		data[i] = driver.EventData{EventID: e.ID, EventType: e.Type, ContentType: content, Data: e.Data, Metadata: e.Meta}
	}
	return data
}

// truncateBefore is the field of stream metadata with the revision before which the stream is
// truncated.
const truncateBefore = "$tb"

// Truncate implements eventstore.Store. It writes the stream metadata at the revision that it
// read, so that a lower truncation never replaces a higher one. While other writers change the
// metadata first, it repeats that until the context ends.
func (s *Store) Truncate(ctx context.Context, stream string, before eventstore.Revision) error {
	what := fmt.Sprintf("truncate %s before %d", stream, before)
	last, ok, err := s.ReadLast(ctx, stream)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if !ok || before < 0 || before > last.Revision {
		return fmt.Errorf("%s: %w", what, eventstore.ErrConflict)
	}
	metadata := "$$" + stream
	for pause := backoff.Conflict(); ; {
		stored, ok, err := s.ReadLast(ctx, metadata)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		at, fields := eventstore.NoStream, map[string]json.RawMessage{}
		if ok {
			at = stored.Revision
			if err := json.Unmarshal(stored.Data, &fields); err != nil {
				return fmt.Errorf("%s: its metadata: %w", what, err)
			}
			if fields == nil {
				return fmt.Errorf("%s: its metadata is not a JSON object", what)
			}
		}
		if current, err := truncatedBefore(fields); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		} else if current >= before {
			return nil
		}
		fields[truncateBefore] = json.RawMessage(fmt.Sprint(before))
		data, err := json.Marshal(fields)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		_, err = s.Append(ctx, metadata, at,
			[]eventstore.Proposed{{ID: uuid.New(), Type: eventstore.MetadataType, Data: data}})
		if !errors.Is(err, eventstore.ErrConflict) {
			return err
		}
		if ended := pause.Wait(ctx); ended != nil {
			return fmt.Errorf("%s: %w: its metadata changed at each try: %w", what, eventstore.ErrUnavailable, ended)
		}
	}
}

// Restore implements eventstore.Store. While other writers change the metadata first, it repeats that until the context
// ends.
func (s *Store) Restore(ctx context.Context, stream string) (hidden bool, err error) {
	what := "restore " + stream
	metadata := "$$" + stream
	for pause := backoff.Conflict(); ; {
		stored, ok, err := s.ReadLast(ctx, metadata)
		if err != nil {
			return false, fmt.Errorf("%s: %w", what, err)
		}
		if !ok {
			return false, nil
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(stored.Data, &fields); err != nil {
			return false, fmt.Errorf("%s: its metadata: %w", what, err)
		}
		n := len(fields)
		for _, name := range []string{truncateBefore, "$maxAge", "$maxCount"} {
			delete(fields, name)
		}
		if len(fields) == n {
			return false, nil
		}
		data, err := json.Marshal(fields)
		if err != nil {
			return false, fmt.Errorf("%s: %w", what, err)
		}
		_, err = s.Append(ctx, metadata, stored.Revision,
			[]eventstore.Proposed{{ID: uuid.New(), Type: eventstore.MetadataType, Data: data}})
		if !errors.Is(err, eventstore.ErrConflict) {
			return err == nil, err
		}
		if ended := pause.Wait(ctx); ended != nil {
			return false, fmt.Errorf("%s: %w: its metadata changed at each try: %w", what, eventstore.ErrUnavailable, ended)
		}
	}
}

// truncatedBefore returns the revision before which metadata truncates its stream, 0 if it does
// not.
func truncatedBefore(fields map[string]json.RawMessage) (eventstore.Revision, error) {
	raw, ok := fields[truncateBefore]
	if !ok {
		return 0, nil
	}
	var before eventstore.Revision
	if err := json.Unmarshal(raw, &before); err != nil {
		return 0, fmt.Errorf("%s of its metadata: %w", truncateBefore, err)
	}
	return before, nil
}
