// Package engine is how the write side writes: a command reads the current state, decides, and appends at the stream
// revision that it read. Decide is the loop; Journal is the log as commands use it.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/keylock"
	"github.com/annals-project/annals/internal/panics"
)

const (
	// DecideTimeout bounds a command as a whole: reads, blobs, the append and its repetitions.
	DecideTimeout = 20 * time.Second
	// VisibleTimeout is how long an answer that promises "now" waits for the projections.
	VisibleTimeout = 5 * time.Second
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
	return last, ok, Unavailable(err)
}

// At reads the event at one revision of a stream. ok is false if there is no such event.
func (l *Journal) At(
	ctx context.Context, stream string, revision eventstore.Revision,
) (e eventstore.DecodedEvent, ok bool, err error) {
	e, ok, err = l.Journal.At(ctx, stream, revision)
	return e, ok, Unavailable(err)
}

// ReadFrom reads all events of a stream from a revision (inclusive) on.
func (l *Journal) ReadFrom(
	ctx context.Context, stream string, from eventstore.Revision,
) ([]eventstore.DecodedEvent, error) {
	events, err := l.Journal.ReadFrom(ctx, stream, from)
	return events, Unavailable(err)
}

// Scan calls visit for each event of a stream from a revision (inclusive) on, until visit returns
// false. It holds only a few events in memory.
func (l *Journal) Scan(
	ctx context.Context, stream string, from eventstore.Revision,
	visit func(eventstore.DecodedEvent) (more bool, err error),
) error {
	return Unavailable(l.Journal.Scan(ctx, stream, from, visit))
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
	return Unavailable(err)
}

// Unavailable returns a fault for a store that cannot be reached, and any other error as it is.
func Unavailable(err error) error {
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

// Lasting reports whether every further try would fail the same way, because of what is stored or
// of a fault in the program. Unknown errors are not lasting.
func Lasting(err error) bool {
	_, unreadable := errors.AsType[*eventstore.UnreadableError](err)
	_, blob := errors.AsType[*eventstore.BlobError](err)
	_, panicked := errors.AsType[*panics.Error](err)
	return unreadable || blob || panicked
}

// FanOutWidth is how many streams a batch or a deletion reads or writes at once. Appends that wait
// together share an fsync and a message to the store: at 128, an item takes three quarters of the
// processor time that it takes at 32.
const FanOutWidth = 128

// FanOutTimeout bounds the work after a commit, which continues when the caller is gone.
const FanOutTimeout = 60 * time.Second

// Each calls work with 0 to n-1, at most FanOutWidth at a time, and stops at the first error. A
// panic of a call is its error.
func (l *Journal) Each(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	return panics.Each(ctx, l.Logger, FanOutWidth, n, work)
}

// Decide is the write engine: it serializes the callers of a stream in this process, reads the
// state, decides, and appends at the revision that it read. On a conflict it reads and decides
// again.
//
// These tasks do not fit it and call UntilNoConflict themselves:
//
//   - a single send (single.run), which first appends without a read, and holds a reservation and
//     an idempotency claim over its tries;
//   - the fan-outs of batches, bulk writes and deletions (fanOutItem, fanOutBatch, applyRow,
//     deleteOne), which append under ids that every process derives, and begin at the revision that
//     the commit names;
//   - changes of an identity record (changeIdentity, ensureIdentityIn), which write new blobs in
//     each try, or run under the lock of another stream;
//   - the end of a send (pipeline.Confirmer.end), which first appends without a read, and the record of
//     a cleared identity (erasure.RecordCleared), which reads only the events after its removal;
//   - the flush of usage (Metering.append), which records its revision in the database first;
//   - holdBlob and tombstone, which decide nothing.

// Head is where a stream ended when it was read.
type Head struct {
	Revision eventstore.Revision // eventstore.NoStream if it has no events
	Position eventstore.Position // of its last event, 0 if that is not known
}

// HeadAfter is the head of a stream of which a state folded a number of events.
func HeadAfter(events int64) Head { return Head{Revision: eventstore.Revision(events - 1)} }

// Decision is a change of one stream.
type Decision[S any] struct {
	Stream string
	// read returns the current state of the stream.
	Read func(ctx context.Context) (S, Head, error)
	// decide returns the events to append, or a fault. Without events the stream stays as it is.
	Decide func(ctx context.Context, state S) ([]event.Event, error)
	// meta is the metadata of a try. Each try needs another command id: the store takes an event
	// for a repetition of another with the same id.
	Meta func() event.Meta
	// blobs are those to which the events refer, nil for none.
	Blobs *Written
	// tries bounds background work, nil for a caller's command, which its deadline bounds.
	Tries *backoff.Tries
}

// Decide returns where the appended events ended or, if nothing was to be appended, where the
// stream ended.
func Decide[S any](ctx context.Context, l *Journal, d Decision[S]) (done eventstore.Appended, err error) {
	release, err := l.Serialize(ctx, d.Stream)
	if err != nil {
		return done, Unavailable(err)
	}
	defer release()
	blobs := d.Blobs
	if blobs == nil {
		blobs = &Written{}
	}
	err = UntilNoConflict(ctx, d.Tries, func(bool) error {
		state, at, err := d.Read(ctx)
		if err != nil {
			return err
		}
		events, err := d.Decide(ctx, state)
		if err != nil || len(events) == 0 {
			done = eventstore.Appended{Revision: at.Revision, Position: at.Position}
			return err
		}
		done, err = l.AppendReferring(ctx, blobs, d.Stream, at.Revision, d.Meta(), events...)
		return err
	})
	return done, err
}

// UntilNoConflict calls try until it returns another error than eventstore.ErrConflict. reread is
// false in the first call. If t is nil, it tries again until the context ends, the first time at once, then with
// growing pauses: a stream whose end cannot be read any more conflicts each time.
func UntilNoConflict(ctx context.Context, t *backoff.Tries, try func(reread bool) error) error {
	pause := backoff.Conflict()
	for reread := false; ; reread = true {
		err := try(reread)
		if !errors.Is(err, eventstore.ErrConflict) {
			return err
		}
		if ctx.Err() != nil {
			return Unavailable(context.Cause(ctx))
		}
		if t == nil {
			if reread {
				_ = pause.Wait(ctx) // the next round notices the end of the context
			}
			continue
		}
		if err := t.Again(ctx, err); err != nil {
			return err
		}
	}
}

// Fold reads a whole stream and folds its events into a state. It fails if the first events are gone: what it decides
// would be wrong.
func Fold[S any, P interface {
	*S
	Evolve(e event.Event)
}](ctx context.Context, l *Journal, name string) (state S, at Head, err error) {
	at.Revision = eventstore.NoStream
	err = l.Scan(ctx, name, 0, func(e eventstore.DecodedEvent) (bool, error) {
		if at.Revision == eventstore.NoStream && e.Revision > 0 {
			l.Logger.ErrorContext(ctx, "first events of a stream are gone from the event store", "stream", name)
			return false, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "a stream that this depends on lacks "+
				"its first events, which somebody else removed from the event store")
		}
		P(&state).Evolve(e.Event)
		at = Head{Revision: e.Revision, Position: e.Position}
		return true, nil
	})
	return state, at, err
}

// Folded is fold for the read of a decision.
func Folded[S any, P interface {
	*S
	Evolve(e event.Event)
}](l *Journal, name string) func(context.Context) (S, Head, error) {
	return func(ctx context.Context) (S, Head, error) { return Fold[S, P](ctx, l, name) }
}

// A blob is written before the event that refers to it. The finisher sweeps a blob to which nothing
// refers once its deadline has passed. A machine that is suspended in between continues its append
// after the deadline, and its timers have not noticed the suspension. These rules ensure that no
// send is acknowledged whose text was swept, even if clocks jump:
//
//   - The deadline of a blob counts from its write, by the wall clock: blob.Keep, and
//     blob.StageKeep for a stage that holds deleted text.
//   - Each try of the append that refers to the blob first reads the wall clock. After referWithin
//     it is not made, and the answer is 503.
//   - After a successful append the writer reads the wall clock again. Before referBy, the event is
//     older than any sweep of the blob. A sweep reads the owner's stream after the deadline, so it
//     sees the reference, provided that the clocks of the two processes differ by less than
//     clockSkew.
//   - After referBy, the stream of the blob decides. The sweep tombstones it at the revision that
//     it read before it looked for references. The writer appends an empty chunk to it before it
//     acknowledges. If the chunk comes first, the sweep fails. If the tombstone comes first, the
//     append of the chunk fails, and the writer answers 503.
//   - A finisher whose wall clock ran ahead of its timers was suspended, and so were the writers on
//     its machine. It sweeps nothing until the commands that these writers had begun are over
//     (sweepRest in commands/pipeline).
const (
	referWithin = blob.StageKeep / 2
	referBy     = blob.StageKeep - clockSkew
	clockSkew   = time.Minute
)

// Written records the blobs that a command wrote for its event. The zero value has none.
type Written struct {
	// since is when the write of the first blob began, by the wall clock.
	since   time.Time
	streams []string
}

// wall returns the time without its monotonic reading. Times with one are compared by the monotonic
// clock, which stops while the machine is suspended.
func (l *Journal) wall() time.Time { return l.Now().Round(0) }

// StoreBlob writes a blob to which an event will refer, and records it in w.
func (l *Journal) StoreBlob(
	ctx context.Context, w *Written, owner, command, project uuid.UUID, deadline time.Time, meta event.Meta, data []byte,
	holds ...uuid.UUID,
) (blob.Ref, error) {
	now := l.wall()
	if w.since.IsZero() {
		w.since = now
	}
	if extended := now.Add(blob.Keep); extended.After(deadline) {
		deadline = extended
	}
	ref, err := l.WriteBlob(ctx, owner, command, project, deadline, meta, data, holds...)
	if err == nil {
		w.streams = append(w.streams, ref.Stream)
	}
	return ref, err
}

// AppendReferring appends events that refer to blobs just written.
func (l *Journal) AppendReferring(
	ctx context.Context, w *Written, stream string, expected eventstore.Revision, meta event.Meta, events ...event.Event,
) (eventstore.Appended, error) {
	if len(w.streams) == 0 {
		return l.Append(ctx, stream, expected, meta, events...)
	}
	limited := eventstore.Journal{Store: inTime{l.Store, l, w}, Codec: l.Codec, Aside: l.Aside}
	done, err := limited.Append(ctx, stream, expected, meta, events...)
	err = appendFault(err)
	if err == nil && l.wall().Sub(w.since) >= referBy {
		err = l.holdBlobs(ctx, w)
	}
	return done, err
}

// inTime is a store that refuses an append that is too late for the blobs to which it refers.
type inTime struct {
	eventstore.Store
	journal *Journal
	w       *Written
}

// Append implements eventstore.Store.
func (s inTime) Append(
	ctx context.Context, stream string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	if held := s.journal.wall().Sub(s.w.since); held >= referWithin {
		return eventstore.Appended{}, heldUp(held)
	}
	return s.Store.Append(ctx, stream, expected, events)
}

func heldUp(held time.Duration) *fault.Error {
	return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
		"the service was held up for %v while it stored the text; whether the write happened is unknown: repeat it with "+
			"the same id or idempotency key", held.Round(time.Second))
}

// holdBlobs ensures that no concurrent sweep removes the blobs of a stored event. The error is a
// fault if a sweep did.
func (l *Journal) holdBlobs(ctx context.Context, w *Written) error {
	for _, name := range w.streams {
		if err := l.holdBlob(ctx, name); errors.Is(err, eventstore.ErrDeleted) {
			l.Logger.ErrorContext(ctx, "blob was swept before its event was stored, write is not acknowledged", "stream", name)
			return heldUp(l.wall().Sub(w.since))
		} else if err != nil {
			return fmt.Errorf("hold blob %s: %w", name, err)
		}
	}
	return nil
}

func (l *Journal) holdBlob(ctx context.Context, name string) error {
	return UntilNoConflict(ctx, nil, func(bool) error {
		last, ok, err := l.Store.ReadLast(ctx, name)
		if err != nil {
			return Unavailable(err)
		}
		if !ok {
			return eventstore.ErrDeleted
		}
		// An empty chunk does not change the content.
		_, err = l.Append(ctx, name, last.Revision, event.NewMeta("", l.wall()), blob.Chunk{})
		return err
	})
}

// InlineBody is how many bytes of JSON the texts of an event may have. Beyond it, the larger text
// goes to a blob. The rest of blob.InlineLimit is for the other fields of the event.
const InlineBody = blob.InlineLimit - 16<<10

// Salt is in the first line of a stage. The hash of a stage is in a stream that outlives the stage
// (blob.Ref). Without a secret in the stage, a guess of the text could be confirmed after its
// erasure.
type Salt struct {
	Salt uuid.UUID `json:"salt,omitzero"`
}

// NewSalt draws a salt.
func NewSalt() Salt { return Salt{uuid.New()} }

// StageError is a stage that is missing or damaged: another try cannot read it either.
type StageError struct {
	Send uuid.UUID
	Err  error
}

func (e *StageError) Error() string { return fmt.Sprintf("stage of send %s: %v", e.Send, e.Err) }

func (e *StageError) Unwrap() error { return e.Err }

// TombstoneStage tombstones a stage that no batch needs any more. If that fails, the sweep does it.
func (l *Journal) TombstoneStage(ctx context.Context, name string) {
	if _, err := l.TombstoneBlob(ctx, name); err != nil {
		l.Logger.WarnContext(ctx, "tombstone of stage failed, left to the sweep", "stream", name, "err", err)
	}
}
