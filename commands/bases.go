package commands

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/eventstore"
)

// readBases finds what each item is decided on, and refuses the batch for a deleted data point.
//
// Most items of most batches bring a source id for the first time. An item that the projection knows nothing of is decided on
// an empty stream without a look at it: where that is wrong the store refuses the append, and the fan-out decides again on what
// stands there. Nothing that was answered gets lost by it: an answered deletion is known, and is read. Where limits bind, each is
// read: an item that changes nothing must not be refused for what it would cost.
func (s *Service) readBases(ctx context.Context, b *batch) error {
	known := s.known(ctx, b)
	return s.Log.each(ctx, len(known), func(ctx context.Context, n int) error {
		i := known[n]
		p := &b.prepared[i]
		last, ok, err := s.Log.Last(ctx, p.stream)
		if errors.Is(err, eventstore.ErrDeleted) {
			return atItem(dataPointDeleted(p.ingest.SourceID), i)
		}
		if err != nil || !ok {
			return err
		}
		send, standing, live := datapoint.SendOf(last.Event)
		if !live {
			return atItem(dataPointDeleted(p.ingest.SourceID), i)
		}
		if !standing.Historic() {
			if b.effects[i] = last.Position; send.Commit != 0 {
				b.effects[i] = eventstore.Position(send.Commit)
			}
		}
		head := standing.Head()
		b.bases[i] = datapoint.Base{State: &head, LastNumber: head.LastNumber, Next: int64(last.Revision) + 1}
		return nil
	})
}

// known are the items whose streams are to be read: all, where it cannot be told which are new.
func (s *Service) known(ctx context.Context, b *batch) []int {
	items := make([]int, 0, len(b.prepared))
	var sent map[uuid.UUID]struct{}
	ask := s.DataPoints != nil && !b.quota.binds()
	if ask {
		ids := make([]uuid.UUID, len(b.prepared))
		for i := range b.prepared {
			ids[i] = b.prepared[i].dataPoint
		}
		var err error
		if sent, err = s.DataPoints.Sent(ctx, ids); err != nil {
			s.Log.Logger.WarnContext(ctx, "which data points are new is not known, and each is read", "err", err)
			ask = false
		}
	}
	for i := range b.prepared {
		if _, is := sent[b.prepared[i].dataPoint]; is || !ask {
			items = append(items, i)
		}
	}
	return items
}
