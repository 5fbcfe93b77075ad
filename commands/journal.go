package commands

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/keylock"
	"github.com/annals-project/annals/internal/panics"
)

// Waiter waits until projections have applied a position.
type Waiter interface {
	Wait(ctx context.Context, position eventstore.Position, projections ...string) error
}

// FollowUps waits for work that follows an event in slices.
type FollowUps interface {
	// WaitFollowUp waits until a projection has no follow-up of a kind and a key, queued up to a
	// position that it has applied.
	WaitFollowUp(ctx context.Context, projection, kind string, key uuid.UUID) error
}

const (
	// decideTimeout bounds a command as a whole: reads, blobs, the append and its repetitions.
	decideTimeout = 20 * time.Second
	// visibleTimeout is how long an answer that promises "now" waits for the projections.
	visibleTimeout = 5 * time.Second
	// recountTimeout is how long an answer waits until the members of a rule are counted.
	recountTimeout = 20 * time.Second
)

// Journal is the event log as the write side uses it: an eventstore.Journal that returns faults for
// a store that cannot be reached, with a lock for each stream. It is safe for concurrent use.
type Journal struct {
	eventstore.Journal
	Logger *slog.Logger
	// Namespaces derive the ids of what is read from the log.
	Namespaces stream.Namespaces
	// Now is the clock, time.Now unless a test sets another.
	Now func() time.Time
	// Pace holds up the fan-out of batches while projections lag. Nil never does.
	Pace *BatchPace

	locks      keylock.Map[string]
	registered registered
}

// streams is what ends the streams of the log.
func (l *Journal) streams() erasure.Streams {
	return erasure.Streams{Journal: l.Journal, Projects: l, Logger: l.Logger, Now: l.Now}
}

// NewJournal makes a Journal.
func NewJournal(store eventstore.Store, codec *eventstore.Codec, logger *slog.Logger) *Journal {
	return &Journal{
		Journal: eventstore.Journal{Store: store, Codec: codec, Aside: eventstore.NewSetAside(store, codec)},
		Logger:  logger, Now: time.Now,
	}
}

// Append encodes the events of one command and appends them at an exact stream revision. The errors
// are eventstore.ErrConflict and ErrDeleted, or a fault.Unavailable if the outcome is still unknown
// when the context ends.
func (l *Journal) Append(
	ctx context.Context, stream string, expected eventstore.Revision, meta event.Meta, events ...event.Event,
) (eventstore.Appended, error) {
	done, err := l.Journal.Append(ctx, stream, expected, meta, events...)
	return done, appendFault(err)
}

// Last reads the last event of a stream as eventstore.Journal.Last does.
func (l *Journal) Last(ctx context.Context, stream string) (last eventstore.DecodedEvent, ok bool, err error) {
	last, ok, err = l.Journal.Last(ctx, stream)
	return last, ok, unavailable(err)
}

// At reads the event at one revision of a stream. ok is false if there is no such event.
func (l *Journal) At(
	ctx context.Context, stream string, revision eventstore.Revision,
) (e eventstore.DecodedEvent, ok bool, err error) {
	e, ok, err = l.Journal.At(ctx, stream, revision)
	return e, ok, unavailable(err)
}

// ReadFrom reads all events of a stream from a revision (inclusive) on.
func (l *Journal) ReadFrom(
	ctx context.Context, stream string, from eventstore.Revision,
) ([]eventstore.DecodedEvent, error) {
	events, err := l.Journal.ReadFrom(ctx, stream, from)
	return events, unavailable(err)
}

// Scan calls visit for each event of a stream from a revision (inclusive) on, until visit returns
// false. It holds only a few events in memory.
func (l *Journal) Scan(
	ctx context.Context, stream string, from eventstore.Revision,
	visit func(eventstore.DecodedEvent) (more bool, err error),
) error {
	return unavailable(l.Journal.Scan(ctx, stream, from, visit))
}

// Serialize waits for the callers of the same stream in this process, so that their appends do not
// conflict. The caller must call release.
func (l *Journal) Serialize(ctx context.Context, stream string) (release func(), err error) {
	return l.locks.Lock(ctx, stream)
}

// appendFault is unavailable for the error of an append.
func appendFault(err error) error {
	if errors.Is(err, eventstore.ErrUnknown) {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the event store did not answer in time and the write may have happened; "+
				"repeat it with the same id or idempotency key")
	}
	return unavailable(err)
}

// unavailable returns a fault for a store that cannot be reached, and any other error as it is.
func unavailable(err error) error {
	if older, is := errors.AsType[*eventstore.OlderCopyError](err); is {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s", older.Error())
	}
	switch {
	case err == nil, errors.Is(err, eventstore.ErrDeleted), errors.Is(err, eventstore.ErrConflict):
		return err
	case errors.Is(err, eventstore.ErrFull):
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the disk of the event store is full: nothing was written; retry once there is space")
	case errors.Is(err, eventstore.ErrTooLarge):
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the event store refuses an append of this size: nothing was written; its operator must raise MaxAppendSize "+
				"(--max-append-size) to at least %d bytes; its default is 1 MiB", eventstore.MaxAppend)
	case errors.Is(err, eventstore.ErrDenied):
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the event store denies the service a right: nothing was written; its operator must give the right back")
	case errors.Is(err, eventstore.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the event store cannot be reached; retry")
	default:
		return err
	}
}

// waitVisible waits until the projections have applied a position. If they do not in time, the
// fault reports that the write is committed.
func waitVisible(ctx context.Context, w Waiter, position eventstore.Position, projections ...string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), visibleTimeout)
	defer cancel()
	if err := w.Wait(ctx, position, projections...); err != nil {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the write is stored and takes effect shortly, but is not visible everywhere yet").With("committed", true)
	}
	return nil
}

// newMeta is meta of a new command.
func (c Call) newMeta() event.Meta { return c.meta(uuid.New()) }

// meta is the metadata of the events that a call causes.
func (c Call) meta(command uuid.UUID) event.Meta {
	return event.Meta{
		RequestID: c.RequestID, CommandID: command, Principal: c.Principal.Name(), CorrelationID: c.RequestID,
		At: c.ReceivedAt, Reason: c.Reason,
	}
}

// Lasting reports whether every further try would fail the same way, because of what is stored or
// of a fault in the program. Unknown errors are not lasting.
func Lasting(err error) bool {
	_, unreadable := errors.AsType[*eventstore.UnreadableError](err)
	_, blob := errors.AsType[*eventstore.BlobError](err)
	_, panicked := errors.AsType[*panics.Error](err)
	return unreadable || blob || panicked
}
