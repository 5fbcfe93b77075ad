package commands

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// Retry puts the failed items of a stopped send back into the queue. It is free and looks at no cap.
//
// Its faults are not-found, pipeline-disabled, data-point-deleted if nothing of the send is left,
// and ingestion-not-stopped. The last also covers a send that a watermark found searchable before
// its failure, and a send that was deleted as a whole: polls report both as completed, even if a
// later send kept some of the data points alive, or the send was abandoned before it had any.
func (s *Service) Retry(ctx context.Context, call Call, id uuid.UUID) error {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	dataPoints, found, err := s.Sends.Targets(decideCtx, call.Principal.Project, id)
	if err != nil {
		return err
	}
	if !found {
		return fault.New(fault.NotFound, fault.CodeNotFound, "the project has no ingestion %s", id)
	}
	if !s.Pipeline {
		return fault.New(fault.Unavailable, fault.CodePipelineDisabled, "background ingestion is switched off; the send waits")
	}
	name := stream.Name(stream.Ingestion, id)
	for {
		facts, err := s.Log.ReadFrom(decideCtx, name, 0)
		if err != nil {
			return err
		}
		round, stopped := 0, false
		for _, f := range facts {
			switch f.Event.(type) {
			case *ingestion.Retried:
				round++
				stopped = false
			case *ingestion.Failed:
				stopped = true
			}
		}
		if gone, err := s.allDeleted(decideCtx, dataPoints); err != nil {
			return err
		} else if gone && !unfanned(facts) { // what is not fanned out never came to be
			return fault.New(fault.Conflict, fault.CodeDataPointDeleted, "every data point of the send was deleted")
		}
		if stopped {
			completed, err := s.Sends.Completed(decideCtx, call.Principal.Project, id)
			if err != nil {
				return err
			}
			stopped = !completed
		}
		if !stopped {
			return fault.New(fault.Conflict, fault.CodeIngestionNotStopped, "the send has not stopped")
		}
		retried := ingestion.Retried{ProjectID: call.Principal.Project.ID, Round: round + 1, RequestID: call.RequestID, RetriedAt: call.ReceivedAt}
		done, err := s.Log.Append(decideCtx, name, eventstore.Revision(len(facts)-1), call.meta(uuid.New()), retried)
		if errors.Is(err, eventstore.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		return visible(ctx, s.Waiter, done.Position, projectionDataPoints)
	}
}

// allDeleted reports whether a send that brought revisions has none left: a send without any has nothing to retry either,
// but that is for its state to say.
func (s *Service) allDeleted(ctx context.Context, dataPoints []uuid.UUID) (bool, error) {
	var alive atomic.Int64
	err := s.Log.each(ctx, len(dataPoints), func(ctx context.Context, i int) error {
		t, err := s.Log.target(ctx, dataPoints[i])
		if err == nil && t.live() {
			alive.Add(1)
		}
		return err
	})
	return len(dataPoints) > 0 && alive.Load() == 0, err
}
