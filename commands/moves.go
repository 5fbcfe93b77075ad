package commands

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/eventstore"
)

// A move promises that recall follows it. So does an answer that a data point is unchanged in a named audience: what moved it there
// may have been answered to nobody.

// moves reports whether the answer to a send on this base waits for recall to follow.
func moves(base datapoint.Base, in datapoint.Ingest) bool {
	return base.State != nil &&
		(base.State.Audience != in.Audience || in.Audience != uuid.Nil && base.Outcome(in) == ingestion.Unchanged)
}

// movesItem is moves of an item whose outcome is known; from is what it was decided on, as far as that was read before the commit.
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

// followed waits until recall has applied everything up to the position of some outcomes. A moved
// item has nothing to derive, so the answer says that it is completed; that also waits for the
// index, so that the new readers find it.
func (s *Service) followed(ctx context.Context, position eventstore.Position, outcomes ...ingestion.Outcome) error {
	for _, o := range outcomes {
		if o.Outcome == ingestion.Moved {
			return visible(ctx, s.Waiter, position, projectionDataPoints, projectionRecallIndex)
		}
	}
	return visible(ctx, s.Waiter, position, projectionDataPoints)
}

// followedBatch waits until recall follows a batch that is fanned out, where an item of it moved.
func (s *Service) followedBatch(ctx context.Context, b *batch, outcomes []ingestion.Outcome) error {
	for i, o := range outcomes {
		to := b.prepared[i].ingest.Audience
		if movesItem(o, to != uuid.Nil, b.bases[i].State, to) {
			return s.followedHead(ctx, outcomes)
		}
	}
	return nil
}

// followedReplay is followedBatch of a batch that another try fanned out.
func (s *Service) followedReplay(ctx context.Context, items []DataPoint, outcomes []ingestion.Outcome) error {
	for i, o := range outcomes {
		slug := items[i].Audience
		if movesItem(o, slug != nil && *slug != audience.Default, nil, uuid.Nil) {
			return s.followedHead(ctx, outcomes)
		}
	}
	return nil
}

// followedHead waits for all that is stored now, which the fan-out is part of.
func (s *Service) followedHead(ctx context.Context, outcomes []ingestion.Outcome) error {
	head, err := s.Log.Store.Head(ctx)
	if err != nil {
		return unavailable(err)
	}
	return s.followed(ctx, head, outcomes...)
}
