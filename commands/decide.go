package commands

import (
	"context"
	"errors"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
)

// runDecision is the write engine: it serializes the callers of a stream in this process, reads the
// state, decides, and appends at the revision that it read. On a conflict it reads and decides
// again.
//
// These tasks do not fit it and call untilNoConflict themselves:
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

// head is where a stream ended when it was read.
type head struct {
	revision eventstore.Revision // eventstore.NoStream if it has no events
	position eventstore.Position // of its last event, 0 if that is not known
}

// headAfter is the head of a stream of which a state folded a number of events.
func headAfter(events int64) head { return head{revision: eventstore.Revision(events - 1)} }

// decision is a change of one stream.
type decision[S any] struct {
	stream string
	// read returns the current state of the stream.
	read func(ctx context.Context) (S, head, error)
	// decide returns the events to append, or a fault. Without events the stream stays as it is.
	decide func(ctx context.Context, state S) ([]event.Event, error)
	// meta is the metadata of a try. Each try needs another command id: the store takes an event
	// for a repetition of another with the same id.
	meta func() event.Meta
	// blobs are those to which the events refer, nil for none.
	blobs *written
	// tries bounds background work, nil for a caller's command, which its deadline bounds.
	tries *backoff.Tries
}

// runDecision returns where the appended events ended or, if nothing was to be appended, where the
// stream ended.
func runDecision[S any](ctx context.Context, l *Journal, d decision[S]) (done eventstore.Appended, err error) {
	release, err := l.Serialize(ctx, d.stream)
	if err != nil {
		return done, unavailable(err)
	}
	defer release()
	blobs := d.blobs
	if blobs == nil {
		blobs = &written{}
	}
	err = untilNoConflict(ctx, d.tries, func(bool) error {
		state, at, err := d.read(ctx)
		if err != nil {
			return err
		}
		events, err := d.decide(ctx, state)
		if err != nil || len(events) == 0 {
			done = eventstore.Appended{Revision: at.revision, Position: at.position}
			return err
		}
		done, err = l.appendReferring(ctx, blobs, d.stream, at.revision, d.meta(), events...)
		return err
	})
	return done, err
}

// untilNoConflict calls try until it returns another error than eventstore.ErrConflict. reread is
// false in the first call. If t is nil, it tries again until the context ends, the first time at once, then with
// growing pauses: a stream whose end cannot be read any more conflicts each time.
func untilNoConflict(ctx context.Context, t *backoff.Tries, try func(reread bool) error) error {
	pause := backoff.Conflict()
	for reread := false; ; reread = true {
		err := try(reread)
		if !errors.Is(err, eventstore.ErrConflict) {
			return err
		}
		if ctx.Err() != nil {
			return unavailable(context.Cause(ctx))
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

// fold reads a whole stream and folds its events into a state. It fails if the first events are gone: what it decides
// would be wrong.
func fold[S any, P interface {
	*S
	Evolve(e event.Event)
}](ctx context.Context, l *Journal, name string) (state S, at head, err error) {
	at.revision = eventstore.NoStream
	err = l.Scan(ctx, name, 0, func(e eventstore.DecodedEvent) (bool, error) {
		if at.revision == eventstore.NoStream && e.Revision > 0 {
			l.Logger.ErrorContext(ctx, "first events of a stream are gone from the event store", "stream", name)
			return false, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "a stream that this depends on lacks "+
				"its first events, which somebody else removed from the event store")
		}
		P(&state).Evolve(e.Event)
		at = head{revision: e.Revision, position: e.Position}
		return true, nil
	})
	return state, at, err
}

// folded is fold for the read of a decision.
func folded[S any, P interface {
	*S
	Evolve(e event.Event)
}](l *Journal, name string) func(context.Context) (S, head, error) {
	return func(ctx context.Context) (S, head, error) { return fold[S, P](ctx, l, name) }
}
