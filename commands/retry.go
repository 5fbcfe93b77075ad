package commands

import (
	"context"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/projection"
)

// Retry puts the failed items of a stopped send back into the queue. It is free and looks at no
// cap.
//
// Its faults are not-found, pipeline-disabled, data-point-deleted if nothing of the send is left,
// and ingestion-not-stopped. The last also covers a send that a watermark found searchable before
// its failure, and a send that was deleted as a whole: polls report both as completed, even if a
// later send kept some of the data points alive, or the send was abandoned before it had any.
func (s *Service) Retry(ctx context.Context, call Call, id uuid.UUID) error {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
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
	done, err := runDecision(decideCtx, s.journal, decision[ingestion.State]{
		stream: name, read: folded[ingestion.State](s.journal, name), meta: call.newMeta,
		decide: func(ctx context.Context, state ingestion.State) ([]event.Event, error) {
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
	return waitVisible(ctx, s.waiter, done.Position, projection.DataPoints)
}

// RetryOf is Retry for a person who may retry the sends of all projects: the project of the call is that of the send.
func (s *Service) RetryOf(ctx context.Context, call Call, id uuid.UUID) error {
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
	err := s.journal.each(ctx, len(dataPoints), func(ctx context.Context, i int) error {
		t, err := s.journal.target(ctx, dataPoints[i])
		if err == nil && t.live() {
			alive.Add(1)
		}
		return err
	})
	return len(dataPoints) > 0 && alive.Load() == 0, err
}
