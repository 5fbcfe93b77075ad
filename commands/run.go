package commands

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/turns"
)

// Waiter waits until projections have applied a position.
type Waiter interface {
	Wait(ctx context.Context, position eventstore.Position, projections ...string) error
}

const (
	// decideTimeout bounds a command as a whole: reads, blobs, the append and its repetitions.
	decideTimeout = 20 * time.Second
	// visibleTimeout is how long an answer that promises "now" waits for the projections.
	visibleTimeout = 5 * time.Second
)

// Log is the write side's way to the event store: it encodes, appends at exact revisions, and repeats an append
// whose outcome is unknown, with the same event ids, until it is answered.
type Log struct {
	Store  eventstore.Store
	Codec  *eventstore.Codec
	Logger *slog.Logger
	// Namespaces derive the ids of what is read from the log; the zero value does for projects whose namespace is not keyed.
	Namespaces stream.Namespaces
	// Now is the clock, time.Now unless a test sets another.
	Now func() time.Time

	turns      turns.Turns[string]
	namespaces namespaces
}

// NewLog makes a Log.
func NewLog(store eventstore.Store, codec *eventstore.Codec, logger *slog.Logger) *Log {
	return &Log{Store: store, Codec: codec, Logger: logger, Now: time.Now}
}

// Append encodes the events of one command and appends them at the revision that it was decided on.
// The errors are eventstore.ErrConflict and ErrDeleted, or a fault.Unavailable once the deadline passed without an answer.
func (l *Log) Append(ctx context.Context, stream string, expected eventstore.Revision, meta event.Meta, events ...event.Event) (eventstore.Appended, error) {
	proposed, err := l.Codec.EncodeAll(events, meta)
	if err != nil {
		return eventstore.Appended{}, err
	}
	return l.AppendEncoded(ctx, stream, expected, proposed)
}

// AppendEncoded is Append of events that are encoded already.
func (l *Log) AppendEncoded(ctx context.Context, stream string, expected eventstore.Revision, proposed []eventstore.Proposed) (eventstore.Appended, error) {
	return l.appendBy(ctx, l.Store, stream, expected, proposed)
}

// appendBy is AppendEncoded to the store of the log or to one that wraps it.
func (l *Log) appendBy(
	ctx context.Context, store eventstore.Store, stream string, expected eventstore.Revision,
	proposed []eventstore.Proposed,
) (eventstore.Appended, error) {
	done, err := eventstore.AppendUntilKnown(ctx, store, stream, expected, proposed)
	if errors.Is(err, eventstore.ErrUnknown) {
		return eventstore.Appended{}, fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the event store did not answer in time; whether the write happened is unknown: repeat it with the same id or idempotency key")
	}
	return done, unavailable(err)
}

// Last reads and decodes the last event of a stream; ok is false where there is none.
func (l *Log) Last(ctx context.Context, stream string) (last eventstore.Fact, ok bool, err error) {
	recorded, ok, err := l.Store.ReadLast(ctx, stream)
	if err != nil || !ok {
		return eventstore.Fact{}, false, unavailable(err)
	}
	last = l.Codec.Fact(recorded)
	return last, true, sound(last)
}

// ReadFrom reads and decodes all events of a stream from a revision on.
func (l *Log) ReadFrom(ctx context.Context, stream string, from eventstore.Revision) ([]eventstore.Fact, error) {
	const page = 256
	var facts []eventstore.Fact
	for {
		next, err := l.readPage(ctx, stream, from, page)
		if err != nil {
			return nil, err
		}
		facts = append(facts, next...)
		if len(next) < page {
			return facts, nil
		}
		from = next[len(next)-1].Revision + 1
	}
}

// scanPage is how many events Scan reads at a time; most have at most blob.InlineLimit bytes.
const scanPage = 64

// Scan calls see for each event of a stream from a revision on, until it returns false. However long the stream is, only a page of it is
// in memory.
func (l *Log) Scan(ctx context.Context, stream string, from eventstore.Revision, see func(eventstore.Fact) (bool, error)) error {
	for {
		facts, err := l.readPage(ctx, stream, from, scanPage)
		if err != nil {
			return err
		}
		for _, f := range facts {
			if more, err := see(f); err != nil || !more {
				return err
			}
			from = f.Revision + 1
		}
		if len(facts) < scanPage {
			return nil
		}
	}
}

// readPage reads and decodes at most count events of a stream from a revision on; fewer mean that there are no more.
func (l *Log) readPage(ctx context.Context, stream string, from eventstore.Revision, count int) ([]eventstore.Fact, error) {
	records, err := l.Store.Read(ctx, stream, from, eventstore.Forwards, count)
	if err != nil {
		return nil, unavailable(err)
	}
	facts := make([]eventstore.Fact, len(records))
	for i, r := range records {
		facts[i] = l.Codec.Fact(r)
		if err := sound(facts[i]); err != nil {
			return nil, err
		}
	}
	return facts, nil
}

// At reads and decodes the event at one revision of a stream.
func (l *Log) At(ctx context.Context, stream string, revision eventstore.Revision) (eventstore.Fact, bool, error) {
	records, err := l.Store.Read(ctx, stream, revision, eventstore.Forwards, 1)
	if err != nil || len(records) == 0 || records[0].Revision != revision {
		return eventstore.Fact{}, false, unavailable(err)
	}
	f := l.Codec.Fact(records[0])
	return f, true, sound(f)
}

// Serialize waits for the callers of the same stream in this process, so that they do not race each other. The release must be called.
func (l *Log) Serialize(ctx context.Context, stream string) (release func(), err error) {
	return l.turns.Enter(ctx, stream)
}

// unavailable keeps what callers tell apart and turns a store that cannot be reached into a fault.
func unavailable(err error) error {
	switch {
	case err == nil, errors.Is(err, eventstore.ErrDeleted), errors.Is(err, eventstore.ErrConflict):
		return err
	case errors.Is(err, eventstore.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the event store cannot be reached; retry")
	default:
		return err
	}
}

// visible waits until what was committed is seen by the projections; late is a 503 that says so.
func visible(ctx context.Context, w Waiter, position eventstore.Position, projections ...string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), visibleTimeout)
	defer cancel()
	if err := w.Wait(ctx, position, projections...); err != nil {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the write is stored and takes effect shortly, but is not visible everywhere yet").With("committed", true)
	}
	return nil
}

// meta is the metadata of the events that a call causes.
func (c Call) meta(command uuid.UUID) event.Meta {
	return event.Meta{RequestID: c.RequestID, CommandID: command, Principal: c.Principal.Name(), CorrelationID: c.RequestID}
}

// EndOfStream is where a backwards read of a whole stream begins.
const EndOfStream = eventstore.Revision(math.MaxInt64)
