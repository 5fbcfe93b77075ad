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

// written records the blobs that a command wrote for its event. The zero value has none.
type written struct {
	// since is when the write of the first blob began, by the wall clock.
	since   time.Time
	streams []string
}

// wall returns the time without its monotonic reading. Times with one are compared by the monotonic
// clock, which stops while the machine is suspended.
func (l *Journal) wall() time.Time { return l.Now().Round(0) }

// writeBlob writes a blob to which an event will refer, and records it in w.
func (l *Journal) writeBlob(
	ctx context.Context, w *written, owner, command, project uuid.UUID, deadline time.Time, meta event.Meta, data []byte,
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

// appendReferring appends events that refer to blobs just written.
func (l *Journal) appendReferring(
	ctx context.Context, w *written, stream string, expected eventstore.Revision, meta event.Meta, events ...event.Event,
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
	w       *written
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
func (l *Journal) holdBlobs(ctx context.Context, w *written) error {
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
	return untilNoConflict(ctx, nil, func(bool) error {
		last, ok, err := l.Store.ReadLast(ctx, name)
		if err != nil {
			return unavailable(err)
		}
		if !ok {
			return eventstore.ErrDeleted
		}
		// An empty chunk does not change the content.
		_, err = l.Append(ctx, name, last.Revision, event.NewMeta("", l.wall()), blob.Chunk{})
		return err
	})
}
