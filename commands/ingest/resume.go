package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/projection"
)

// storedSend is a send as its own stream records it.
type storedSend struct {
	ingestion.State
	id uuid.UUID
	// commit is the position of the first event: of a batch, its commit.
	commit eventstore.Position
}

func readSend(ctx context.Context, l *engine.Journal, id uuid.UUID) (*storedSend, error) {
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
func ResumeBatch(ctx context.Context, l *engine.Journal, id uuid.UUID, now time.Time) error {
	send, err := readSend(ctx, l, id)
	if err != nil || send.Events == 0 || send.Outcomes != nil || send.Abandoned() {
		return err
	}
	if send.Batch == nil {
		return fmt.Errorf("resume send %s: it is not a batch", id)
	}
	_, err = resumeOrAbandon(ctx, l, send, now)
	return err
}

// resumeOrAbandon fans out a batch that another run left. The outcomes of an abandoned batch are
// empty.
func resumeOrAbandon(
	ctx context.Context, l *engine.Journal, send *storedSend, now time.Time,
) ([]ingestion.Outcome, error) {
	empty := make([]ingestion.Outcome, len(send.Batch.Items))
	if send.Abandoned() {
		return empty, nil
	}
	deleted, err := deletionOf(ctx, l, send.id)
	if err != nil {
		return nil, err
	}
	if deleted != nil && send.Events > 1 { // it was retried while it was being deleted, and creates nothing
		return empty, abandon(ctx, l, send.id, now)
	}
	outcomes, err := resumeBatch(ctx, l, send, deleted)
	if lost, is := errors.AsType[*engine.StageError](err); is {
		l.Logger.ErrorContext(ctx, "batch abandoned, its stage is lost", "send", send.id, "err", lost)
		return empty, abandon(ctx, l, send.id, now)
	}
	return outcomes, err
}

// deletionOf returns the deletion of a batch that was recorded before its fan-out was complete, nil
// for none.
func deletionOf(ctx context.Context, l *engine.Journal, send uuid.UUID) (*deletion.Accepted, error) {
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
func abandon(ctx context.Context, l *engine.Journal, id uuid.UUID, now time.Time) error {
	name := stream.Name(stream.Ingestion, id)
	_, err := engine.Decide(ctx, l, engine.Decision[ingestion.State]{
		Stream: name, Read: engine.Folded[ingestion.State](l, name), Tries: &backoff.Tries{},
		Decide: func(_ context.Context, send ingestion.State) ([]event.Event, error) { return send.Abandon(now), nil },
		Meta:   func() event.Meta { return event.NewMeta("finisher", now).Of(id) },
	})
	return err
}

// ResumeDeletion completes the fan-out of a committed deletion that its process left, and returns
// the position of its end. It changes nothing if the fan-out is complete. For the deletion of a
// batch, it first completes the fan-out of the batch, so that no item of the batch is stored after
// the deletion.
func ResumeDeletion(ctx context.Context, l *engine.Journal, id uuid.UUID, now time.Time) (eventstore.Position, error) {
	state, at, err := engine.Fold[deletion.State](ctx, l, stream.Name(stream.Deletion, id))
	if err != nil || !state.PendingFanOut() {
		return at.Position, err
	}
	accepted := state.Commit
	if accepted.IngestionID != uuid.Nil {
		send, err := readSend(ctx, l, accepted.IngestionID)
		if err != nil {
			return 0, err
		}
		if send.PendingFanOut() {
			if _, err := resumeOrAbandon(ctx, l, send, now); err != nil {
				return 0, err
			}
		}
	}
	d := &deletionRun{
		id: id, ingestionID: accepted.IngestionID, accepted: *accepted, targets: make([]target, len(accepted.Targets)),
	}
	err = l.Each(ctx, len(d.targets), func(ctx context.Context, i int) (err error) {
		d.targets[i], err = readTarget(ctx, l, accepted.Targets[i].DataPoint)
		return err
	})
	if err != nil {
		return 0, err
	}
	return fanOutDeletion(ctx, l, d)
}

// Retry puts the failed items of a stopped send back into the queue. It is free and looks at no
// cap.
//
// Its faults are not-found, pipeline-disabled, data-point-deleted if nothing of the send is left,
// and ingestion-not-stopped. The last also covers a send that a watermark found searchable before
// its failure, and a send that was deleted as a whole: polls report both as completed, even if a
// later send kept some of the data points alive, or the send was abandoned before it had any.
func (s *Service) Retry(ctx context.Context, call engine.Call, id uuid.UUID) error {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	dataPoints, err := s.targetsOf(decideCtx, call, id)
	if err != nil {
		return err
	}
	if !s.pipeline {
		return fault.New(fault.Unavailable, fault.CodePipelineDisabled,
			"background ingestion is switched off; the send waits")
	}
	name := stream.Name(stream.Ingestion, id)
	done, err := engine.Decide(decideCtx, s.journal, engine.Decision[ingestion.State]{
		Stream: name, Read: engine.Folded[ingestion.State](s.journal, name), Meta: call.NewMeta,
		Decide: func(ctx context.Context, state ingestion.State) ([]event.Event, error) {
			retry := ingestion.Retry{ProjectID: call.Principal.Project.ID, RequestID: call.RequestID, At: call.ReceivedAt}
			var err error
			if retry.AllDeleted, err = s.allDeleted(ctx, dataPoints); err != nil {
				return nil, err
			}
			if state.Stopped {
				if retry.Completed, err = s.sends.Completed(ctx, call.Principal.Project, id); err != nil {
					return nil, err
				}
			}
			return state.Retry(retry)
		},
	})
	if err != nil {
		return err
	}
	return engine.WaitVisible(ctx, s.waiter, done.Position, projection.DataPoints)
}

// RetryOf is Retry for a person who may retry the sends of all projects: the project of the call is that of the send.
func (s *Service) RetryOf(ctx context.Context, call engine.Call, id uuid.UUID) error {
	project, found, err := s.sends.ProjectOf(ctx, id)
	if err != nil {
		return err
	}
	if !found {
		return fault.New(fault.NotFound, fault.CodeNotFound, "there is no ingestion %s", id)
	}
	call.Principal.Project = auth.Project{ID: project}
	return s.Retry(ctx, call, id)
}

// allDeleted reports whether a send that created revisions has no live data point left. It is false
// for a send that created none: the state of that decides.
func (s *Service) allDeleted(ctx context.Context, dataPoints []uuid.UUID) (bool, error) {
	var alive atomic.Int64
	err := s.journal.Each(ctx, len(dataPoints), func(ctx context.Context, i int) error {
		t, err := readTarget(ctx, s.journal, dataPoints[i])
		if err == nil && t.live() {
			alive.Add(1)
		}
		return err
	})
	return len(dataPoints) > 0 && alive.Load() == 0, err
}
