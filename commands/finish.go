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
)

// ResumeBatch completes the fan-out of a committed batch that its process left. One that is complete is left as it is, one
// whose stage is lost ends as failed: it is put back by a retry, and by that alone.
func (l *Log) ResumeBatch(ctx context.Context, id uuid.UUID, now time.Time) error {
	facts, err := l.ReadFrom(ctx, stream.Name(stream.Ingestion, id), 0)
	if err != nil || len(facts) == 0 || fannedOut(facts) != nil || givenUp(facts) {
		return err
	}
	accepted, ok := facts[0].Event.(*ingestion.Accepted)
	if !ok {
		return fmt.Errorf("send %s is no batch", id)
	}
	_, err = l.resumeOrGiveUp(ctx, facts, accepted, id, now)
	return err
}

// resumeOrGiveUp fans a batch out that another run left. The outcomes of one whose stage is lost are all unknown.
func (l *Log) resumeOrGiveUp(ctx context.Context, facts []eventstore.Fact, accepted *ingestion.Accepted, id uuid.UUID, now time.Time) ([]ingestion.Outcome, error) {
	unknown := make([]ingestion.Outcome, len(accepted.Items))
	if givenUp(facts) {
		return unknown, nil
	}
	deleted, err := l.deletionOf(ctx, id)
	if err != nil {
		return nil, err
	}
	if deleted != nil && len(facts) > 1 { // it was put back while it was being deleted: then it brings nothing any more
		return unknown, l.giveUp(ctx, id, accepted.ProjectID, now)
	}
	outcomes, err := l.resumeBatch(ctx, facts[0], accepted, id, deleted)
	if lost, is := errors.AsType[*stageError](err); is {
		l.Logger.ErrorContext(ctx, "a batch is given up since its stage is lost", "send", id, "err", lost)
		return unknown, l.giveUp(ctx, id, accepted.ProjectID, now)
	}
	return outcomes, err
}

// deletionOf is the deletion of a batch that was recorded before its fan-out was complete, nil for none.
func (l *Log) deletionOf(ctx context.Context, send uuid.UUID) (*deletion.Accepted, error) {
	first, ok, err := l.At(ctx, stream.Name(stream.Deletion, endOf(send)), 0)
	if err != nil || !ok {
		return nil, err
	}
	accepted, is := first.Event.(*deletion.Accepted)
	if !is {
		return nil, fmt.Errorf("deletion %s begins with %s", endOf(send), first.Type)
	}
	return accepted, nil
}

// giveUp ends a batch that cannot be fanned out, unless another run completed it or gave it up.
func (l *Log) giveUp(ctx context.Context, id, project uuid.UUID, now time.Time) error {
	name := stream.Name(stream.Ingestion, id)
	failed := ingestion.Failed{ProjectID: project, Code: ingestion.Internal, Message: "the stored text cannot be read", FailedAt: now}
	for retry := (tries{}); ; {
		facts, err := l.ReadFrom(ctx, name, 0)
		if err != nil || fannedOut(facts) != nil || givenUp(facts) {
			return err
		}
		_, err = l.Append(ctx, name, eventstore.Revision(len(facts)-1), finisherMeta(id), failed)
		if !errors.Is(err, eventstore.ErrConflict) {
			return err
		}
		if err := retry.again(ctx, err); err != nil {
			return err
		}
	}
}

// finisherMeta is the metadata of what the finisher appends on its own, about an operation.
func finisherMeta(operation uuid.UUID) event.Meta {
	return event.Meta{CommandID: uuid.New(), Principal: "finisher", CorrelationID: operation}
}

// unfanned reports whether a send is a batch without a fan-out.
func unfanned(facts []eventstore.Fact) bool {
	if len(facts) == 0 {
		return false
	}
	_, batch := facts[0].Event.(*ingestion.Accepted)
	return batch && fannedOut(facts) == nil
}

// givenUp reports whether a batch ended without a fan-out. A single send, which has none, is never given up.
func givenUp(facts []eventstore.Fact) bool {
	batch, up := false, false
	for _, f := range facts {
		switch f.Event.(type) {
		case *ingestion.Accepted:
			batch = true
		case *ingestion.Failed:
			up = true
		case *ingestion.Retried:
			up = false
		case *ingestion.FannedOut:
			return false
		}
	}
	return batch && up
}

// ResumeDeletion completes the fan-out of a committed deletion that its process left, and returns the position of its end. One
// that is complete is left as it is. The deletion of a batch completes the fan-out of that first: then nothing of it comes later.
func (l *Log) ResumeDeletion(ctx context.Context, id uuid.UUID, now time.Time) (eventstore.Position, error) {
	facts, err := l.ReadFrom(ctx, stream.Name(stream.Deletion, id), 0)
	if err != nil || len(facts) == 0 {
		return 0, err
	}
	accepted, ok := facts[0].Event.(*deletion.Accepted)
	if !ok || len(facts) > 1 {
		return facts[len(facts)-1].Position, nil // the deletion of one id is complete in itself
	}
	if send := accepted.IngestionID; send != uuid.Nil {
		sent, err := l.ReadFrom(ctx, stream.Name(stream.Ingestion, send), 0)
		if err != nil {
			return 0, err
		}
		if unfanned(sent) {
			if _, err := l.resumeOrGiveUp(ctx, sent, sent[0].Event.(*ingestion.Accepted), send, now); err != nil {
				return 0, err
			}
		}
	}
	d := &removal{id: id, ingestionID: accepted.IngestionID, accepted: *accepted, targets: make([]target, len(accepted.Targets))}
	err = l.each(ctx, len(d.targets), func(ctx context.Context, i int) (err error) {
		d.targets[i], err = l.target(ctx, accepted.Targets[i].DataPoint)
		return err
	})
	if err != nil {
		return 0, err
	}
	return l.fanOutDeletion(ctx, d)
}
