package eventstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/eventstore/backoff"
)

// Journal is an event store with the codec of its events, for callers that append and read decoded
// events. Copies share their state, and it is safe for concurrent use.
//
// Reads fail with an *UnreadableError on an event that cannot be decoded, unless an operator has set it aside: then
// they return it as PassedOver.
type Journal struct {
	Store Store
	Codec *Codec
	// Aside has the events that are set aside. Nil passes over none.
	Aside *SetAside
}

// UnreadableError is an event that cannot be decoded, until it is repaired or a program runs that
// can decode it.
type UnreadableError struct {
	Stream   string
	Revision Revision
	Err      error
}

// Error implements error.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("event %d of %s cannot be read: %v", e.Revision, e.Stream, e.Err)
}

func (e *UnreadableError) Unwrap() error { return e.Err }

// Append encodes the events of one command and appends them at an exact stream revision. It repeats
// an append with an unknown outcome until the context ends; see AppendUntilKnown.
func (j Journal) Append(
	ctx context.Context, stream string, expected Revision, meta event.Meta, events ...event.Event,
) (Appended, error) {
	proposed, err := j.Codec.EncodeAll(events, meta)
	if err != nil {
		return Appended{}, err
	}
	return AppendUntilKnown(ctx, j.Store, stream, expected, proposed)
}

// Last reads the last event of a stream that is not passed over. ok is false if the stream has none. In both cases
// its Revision is that of the end of the stream, where the next append goes on: NoStream if it has no events at all.
func (j Journal) Last(ctx context.Context, stream string) (last DecodedEvent, ok bool, err error) {
	recorded, ok, err := j.Store.ReadLast(ctx, stream)
	if err != nil || !ok {
		return DecodedEvent{Recorded: Recorded{Revision: NoStream}}, false, err
	}
	if last, err = j.Decode(ctx, recorded); err != nil || !last.IsPassedOver() {
		return last, true, err
	}
	end := recorded.Revision
	for from := end - 1; from >= 0; {
		events, err := j.Read(ctx, stream, from, Backwards, scanLimit)
		if err != nil {
			return DecodedEvent{}, false, err
		}
		for _, f := range events {
			if !f.IsPassedOver() {
				f.Revision = end
				return f, true, nil
			}
		}
		if len(events) < scanLimit {
			break
		}
		from = events[len(events)-1].Revision - 1
	}
	return DecodedEvent{Recorded: Recorded{Revision: end}}, false, nil
}

// At reads the event at one revision of a stream. ok is false if there is no such event.
func (j Journal) At(ctx context.Context, stream string, revision Revision) (e DecodedEvent, ok bool, err error) {
	records, err := j.Store.Read(ctx, stream, revision, Forwards, 1)
	if err != nil || len(records) == 0 || records[0].Revision != revision {
		return DecodedEvent{}, false, err
	}
	e, err = j.Decode(ctx, records[0])
	return e, true, err
}

// Read reads at most limit events of a stream from a revision (inclusive). Fewer than limit mean
// that there are no more in this direction.
func (j Journal) Read(
	ctx context.Context, stream string, from Revision, direction Direction, limit int,
) ([]DecodedEvent, error) {
	records, err := j.Store.Read(ctx, stream, from, direction, limit)
	if err != nil {
		return nil, err
	}
	events := make([]DecodedEvent, len(records))
	for i, r := range records {
		if events[i], err = j.Decode(ctx, r); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// readLimit is how many events ReadFrom reads at a time.
const readLimit = 256

// ReadFrom reads all events of a stream from a revision (inclusive) on.
func (j Journal) ReadFrom(ctx context.Context, stream string, from Revision) ([]DecodedEvent, error) {
	var all []DecodedEvent
	for {
		next, err := j.Read(ctx, stream, from, Forwards, readLimit)
		if err != nil {
			return nil, err
		}
		all = append(all, next...)
		if len(next) < readLimit {
			return all, nil
		}
		from = next[len(next)-1].Revision + 1
	}
}

// scanLimit is how many events Scan reads at a time. Most have at most blob.InlineLimit bytes.
const scanLimit = 64

// Scan calls visit for each event of a stream from a revision (inclusive) on, until visit returns
// false. It holds at most scanLimit events in memory.
func (j Journal) Scan(
	ctx context.Context, stream string, from Revision, visit func(DecodedEvent) (more bool, err error),
) error {
	for {
		events, err := j.Read(ctx, stream, from, Forwards, scanLimit)
		if err != nil {
			return err
		}
		for _, e := range events {
			if more, err := visit(e); err != nil || !more {
				return err
			}
			from = e.Revision + 1
		}
		if len(events) < scanLimit {
			return nil
		}
	}
}

// Decode decodes an event as reads do.
func (j Journal) Decode(ctx context.Context, r Recorded) (DecodedEvent, error) {
	e := j.Codec.DecodeRecorded(r)
	if passes, err := j.Aside.passes(ctx, e); passes || err != nil {
		return DecodedEvent{Recorded: r, Event: PassedOver{}}, err
	}
	if e.Err != nil {
		return e, &UnreadableError{Stream: r.Stream, Revision: r.Revision, Err: e.Err}
	}
	return e, nil
}

// AppendUntilKnown appends and, while the outcome is ErrUnknown, repeats the append with the same
// event ids until the context ends. The error is then ErrUnknown with the cause of the context.
func AppendUntilKnown(
	ctx context.Context, store Store, stream string, expected Revision, events []Proposed,
) (Appended, error) {
	for pause := backoff.Conflict(); ; {
		done, err := store.Append(ctx, stream, expected, events)
		if !errors.Is(err, ErrUnknown) {
			return done, err
		}
		if ended := pause.Wait(ctx); ended != nil {
			return Appended{}, fmt.Errorf("%w: %w", err, ended)
		}
	}
}
