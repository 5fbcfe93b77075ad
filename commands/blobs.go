package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
)

// A blob is written before the event that refers to it, and what nothing refers to is swept once its time is over. A machine that was
// suspended in between goes on with its append a day later, and its timers have not noticed. This is the rule by which no send is
// acknowledged whose text was swept, whatever the clocks do:
//
//   - The time of a blob begins when it is written, by the wall clock: BlobKeep, and StageKeep for a stage with deleted text.
//   - Each try of the append that refers to it first looks at the wall clock. After referWithin it is not made, and the answer is 503.
//   - Once the append was answered, the writer looks again. Before referBy the event is older than any sweep of the blob, which reads
//     the owner's stream after the blob's time: it sees the reference, if the clocks of two processes differ by less than clockSkew.
//   - After referBy the stream of the blob decides. The sweep tombstones it at the very revision that it read before it looked for
//     references; the writer appends an empty chunk to it before it acknowledges. If the chunk is first, the sweep has lost; if the
//     tombstone is first, the writer knows, and answers 503.
//   - A finisher whose wall clock ran ahead of its timers was suspended, and so were the writers of its machine. It sweeps nothing before
//     what they had begun is over (sweepRest in commands/pipeline).
const (
	referWithin = StageKeep / 2
	referBy     = StageKeep - clockSkew
	clockSkew   = time.Minute
)

// written are the blobs that a command wrote for its event. The zero value is none.
type written struct {
	// since is when the first of them was begun, by the wall clock.
	since   time.Time
	streams []string
}

// wall is the time by the wall clock alone: a time with a monotonic part is compared by that, which stands still in a suspended machine.
func (l *Log) wall() time.Time { return l.Now().Round(0) }

// writeBlob writes a blob that an event is to refer to soon, and notes it in w.
func (l *Log) writeBlob(
	ctx context.Context, w *written, owner, command, project uuid.UUID, deadline time.Time, meta event.Meta, data []byte,
	holds ...uuid.UUID,
) (blob.Ref, error) {
	now := l.wall()
	if w.since.IsZero() {
		w.since = now
	}
	if keep := now.Add(BlobKeep); keep.After(deadline) {
		deadline = keep
	}
	ref, err := eventstore.WriteBlob(ctx, l.Store, l.Codec, owner, command, project, deadline, meta, data, holds...)
	if err == nil {
		w.streams = append(w.streams, ref.Stream)
	}
	return ref, err
}

// appendReferring is Append of an event that refers to blobs just written.
func (l *Log) appendReferring(
	ctx context.Context, w *written, stream string, expected eventstore.Revision, meta event.Meta, e event.Event,
) (eventstore.Appended, error) {
	if len(w.streams) == 0 {
		return l.Append(ctx, stream, expected, meta, e)
	}
	proposed, err := l.Codec.EncodeAll([]event.Event{e}, meta)
	if err != nil {
		return eventstore.Appended{}, err
	}
	done, err := l.appendBy(ctx, inTime{l.Store, l, w}, stream, expected, proposed)
	if err == nil && l.wall().Sub(w.since) >= referBy {
		err = l.holdBlobs(ctx, w)
	}
	return done, err
}

// inTime makes no append that comes too late for the blobs that it refers to.
type inTime struct {
	eventstore.Store
	log *Log
	w   *written
}

// Append implements eventstore.Store.
func (s inTime) Append(
	ctx context.Context, stream string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	if held := s.log.wall().Sub(s.w.since); held >= referWithin {
		return eventstore.Appended{}, heldUp(held)
	}
	return s.Store.Append(ctx, stream, expected, events)
}

func heldUp(held time.Duration) *fault.Error {
	return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
		"the service was held up for %v while it stored the text; whether the write happened is unknown: repeat it with "+
			"the same id or idempotency key", held.Round(time.Second))
}

// holdBlobs makes sure that no sweep under way takes the blobs of an event that is stored. The error is a fault if one did.
func (l *Log) holdBlobs(ctx context.Context, w *written) error {
	for _, name := range w.streams {
		if err := l.holdBlob(ctx, name); errors.Is(err, eventstore.ErrDeleted) {
			l.Logger.ErrorContext(ctx, "a text was swept before its event was stored; the write is not acknowledged", "stream", name)
			return heldUp(l.wall().Sub(w.since))
		} else if err != nil {
			return fmt.Errorf("hold blob %s: %w", name, err)
		}
	}
	return nil
}

func (l *Log) holdBlob(ctx context.Context, name string) error {
	for {
		last, ok, err := l.Store.ReadLast(ctx, name)
		if err != nil {
			return unavailable(err)
		}
		if !ok {
			return eventstore.ErrDeleted
		}
		// An empty chunk changes nothing of the content.
		_, err = l.Append(ctx, name, last.Revision, event.Meta{CommandID: uuid.New()}, blob.Chunk{})
		if !errors.Is(err, eventstore.ErrConflict) {
			return err
		}
	}
}
