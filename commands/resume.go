package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
)

// storedSend is a send as its own stream records it.
type storedSend struct {
	ingestion.State
	id uuid.UUID
	// commit is the position of the first event: of a batch, its commit.
	commit eventstore.Position
}

func (l *Journal) readSend(ctx context.Context, id uuid.UUID) (*storedSend, error) {
	s := &storedSend{id: id}
	err := l.Scan(ctx, stream.Name(stream.Ingestion, id), 0, func(e eventstore.DecodedEvent) (bool, error) {
		if s.Events == 0 {
			s.commit = e.Position
		}
		s.Evolve(e.Event)
		return true, nil
	})
	return s, err
}

// ResumeBatch completes the fan-out of a committed batch that its process left. It changes nothing
// if the fan-out is complete or the batch is abandoned. It abandons a batch whose stage is lost:
// only a retry continues that.
func (l *Journal) ResumeBatch(ctx context.Context, id uuid.UUID, now time.Time) error {
	send, err := l.readSend(ctx, id)
	if err != nil || send.Events == 0 || send.Outcomes != nil || send.Abandoned() {
		return err
	}
	if send.Batch == nil {
		return fmt.Errorf("resume send %s: it is not a batch", id)
	}
	_, err = l.resumeOrAbandon(ctx, send, now)
	return err
}

// resumeOrAbandon fans out a batch that another run left. The outcomes of an abandoned batch are
// empty.
func (l *Journal) resumeOrAbandon(ctx context.Context, send *storedSend, now time.Time) ([]ingestion.Outcome, error) {
	empty := make([]ingestion.Outcome, len(send.Batch.Items))
	if send.Abandoned() {
		return empty, nil
	}
	deleted, err := l.deletionOf(ctx, send.id)
	if err != nil {
		return nil, err
	}
	if deleted != nil && send.Events > 1 { // it was retried while it was being deleted, and creates nothing
		return empty, l.abandon(ctx, send.id, now)
	}
	outcomes, err := l.resumeBatch(ctx, send, deleted)
	if lost, is := errors.AsType[*stageError](err); is {
		l.Logger.ErrorContext(ctx, "batch abandoned, its stage is lost", "send", send.id, "err", lost)
		return empty, l.abandon(ctx, send.id, now)
	}
	return outcomes, err
}

// deletionOf returns the deletion of a batch that was recorded before its fan-out was complete, nil
// for none.
func (l *Journal) deletionOf(ctx context.Context, send uuid.UUID) (*deletion.Accepted, error) {
	first, ok, err := l.At(ctx, stream.Name(stream.Deletion, stream.SendDeletionID(send)), 0)
	if err != nil || !ok {
		return nil, err
	}
	accepted, is := first.Event.(*deletion.Accepted)
	if !is {
		return nil, fmt.Errorf("deletion %s begins with %s", stream.SendDeletionID(send), first.Type)
	}
	return accepted, nil
}

// abandon ends a batch that cannot be fanned out, unless another run completed or abandoned it.
func (l *Journal) abandon(ctx context.Context, id uuid.UUID, now time.Time) error {
	name := stream.Name(stream.Ingestion, id)
	_, err := runDecision(ctx, l, decision[ingestion.State]{
		stream: name, read: folded[ingestion.State](l, name), tries: &backoff.Tries{},
		decide: func(_ context.Context, send ingestion.State) ([]event.Event, error) { return send.Abandon(now), nil },
		meta:   func() event.Meta { return event.NewMeta("finisher", now).Of(id) },
	})
	return err
}

// ResumeDeletion completes the fan-out of a committed deletion that its process left, and returns
// the position of its end. It changes nothing if the fan-out is complete. For the deletion of a
// batch, it first completes the fan-out of the batch, so that no item of the batch is stored after
// the deletion.
func (l *Journal) ResumeDeletion(ctx context.Context, id uuid.UUID, now time.Time) (eventstore.Position, error) {
	state, at, err := fold[deletion.State](ctx, l, stream.Name(stream.Deletion, id))
	if err != nil || !state.PendingFanOut() {
		return at.position, err
	}
	accepted := state.Commit
	if accepted.IngestionID != uuid.Nil {
		send, err := l.readSend(ctx, accepted.IngestionID)
		if err != nil {
			return 0, err
		}
		if send.PendingFanOut() {
			if _, err := l.resumeOrAbandon(ctx, send, now); err != nil {
				return 0, err
			}
		}
	}
	d := &deletionRun{
		id: id, ingestionID: accepted.IngestionID, accepted: *accepted, targets: make([]target, len(accepted.Targets)),
	}
	err = l.each(ctx, len(d.targets), func(ctx context.Context, i int) (err error) {
		d.targets[i], err = l.target(ctx, accepted.Targets[i].DataPoint)
		return err
	})
	if err != nil {
		return 0, err
	}
	return l.fanOutDeletion(ctx, d)
}
