package commands

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
)

// movesItem reports whether the answer to an item waits for recall: the answer to a move promises that recall shows it.
// So does the answer that a data point is unchanged in a named audience: an earlier move may have committed without its
// caller seeing the reply. from is what the item was decided on, nil if that was not read before the commit.
func movesItem(outcome ingestion.Outcome, named bool, from *datapoint.State, to uuid.UUID) bool {
	switch outcome.Outcome {
	case ingestion.Moved:
		return true
	case ingestion.Updated:
		return from == nil && named || from != nil && from.Audience != to
	case ingestion.Unchanged:
		return named
	default:
		return false
	}
}

// waitVisibleOutcomes waits until recall has applied the position of some outcomes. Nothing is
// derived from a moved item, so the answer reports it as completed: it also waits for the index, so
// that the new readers find it.
func (s *Service) waitVisibleOutcomes(
	ctx context.Context, position eventstore.Position, outcomes ...ingestion.Outcome,
) error {
	for _, o := range outcomes {
		if o.Outcome == ingestion.Moved {
			return waitVisible(ctx, s.waiter, position, projection.DataPoints, projection.RecallIndex)
		}
	}
	return waitVisible(ctx, s.waiter, position, projection.DataPoints)
}

// waitVisibleBatch waits until recall shows the moved items of a batch that is fanned out.
func (s *Service) waitVisibleBatch(ctx context.Context, b *batch, outcomes []ingestion.Outcome) error {
	for i, o := range outcomes {
		to := b.prepared[i].ingest.Audience
		if movesItem(o, to != uuid.Nil, b.decided[i].Base.State, to) {
			return s.waitVisibleHead(ctx, outcomes)
		}
	}
	return nil
}

// waitVisibleReplay is waitVisibleBatch for a batch that another try fanned out.
func (s *Service) waitVisibleReplay(ctx context.Context, items []DataPoint, outcomes []ingestion.Outcome) error {
	for i, o := range outcomes {
		slug := items[i].Audience
		named := items[i].Private || slug != nil && *slug != audience.Default
		if movesItem(o, named, nil, uuid.Nil) {
			return s.waitVisibleHead(ctx, outcomes)
		}
	}
	return nil
}

// waitVisibleHead waits for everything that is stored now, which includes the fan-out.
func (s *Service) waitVisibleHead(ctx context.Context, outcomes []ingestion.Outcome) error {
	head, err := s.journal.Store.Head(ctx)
	if err != nil {
		return unavailable(err)
	}
	return s.waitVisibleOutcomes(ctx, head, outcomes...)
}
