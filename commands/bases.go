package commands

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/eventstore"
)

// decide decides each item on what it reads. It refuses the batch for a deleted data point.
//
// Most items are the first of their source id. An item that the projection does not know is decided
// on an empty stream without a read. If that is wrong, the store refuses the append, and the
// fan-out decides again on the stream. No answered deletion is missed: the projection knows it, so
// the stream is read. If the send has caps, each stream is read: an item that changes nothing must
// not be refused for its cost.
func (s *Service) decide(ctx context.Context, b *batch) error {
	known, bases := s.known(ctx, b), make([]datapoint.Base, len(b.prepared))
	deleted := make([]bool, len(b.prepared))
	err := s.journal.each(ctx, len(known), func(ctx context.Context, n int) error {
		i := known[n]
		p := &b.prepared[i]
		last, ok, err := s.journal.Last(ctx, p.stream)
		if errors.Is(err, eventstore.ErrDeleted) {
			deleted[i] = true
			return nil
		}
		if err != nil {
			return err
		}
		if !ok {
			bases[i].Next = int64(last.Revision) + 1
			return nil
		}
		send, current, live := datapoint.SendOf(last.Event)
		if !live {
			deleted[i] = true
			return nil
		}
		if !current.Historic() {
			if b.effects[i] = last.Position; send.Commit != 0 {
				b.effects[i] = eventstore.Position(send.Commit)
			}
		}
		head := current.Head()
		bases[i] = datapoint.Base{State: &head, LastNumber: head.LastNumber, Next: int64(last.Revision) + 1}
		return nil
	})
	b.decided = make([]datapoint.Decision, len(bases))
	for i := range bases {
		b.decided[i] = bases[i].Decide(b.prepared[i].ingest)
	}
	if err != nil {
		return err
	}
	return b.refuseDeleted(deleted)
}

// refuseDeleted returns the fault of a batch with deleted data points. It names all of them, so that a client leaves
// them out at once.
func (b *batch) refuseDeleted(deleted []bool) error {
	var ids []string
	first := -1
	for i, is := range deleted {
		if is {
			if ids = append(ids, b.prepared[i].ingest.SourceID); first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return nil
	}
	return atItem(dataPointDeleted(ids[0]).With("ids", ids), first)
}

// known returns the items whose streams are to be read: all, if new ones cannot be identified.
func (s *Service) known(ctx context.Context, b *batch) []int {
	items := make([]int, 0, len(b.prepared))
	var sent map[uuid.UUID]struct{}
	ask := s.dataPoints != nil && !b.reservation.hasCaps()
	if ask {
		ids := make([]uuid.UUID, len(b.prepared))
		for i := range b.prepared {
			ids[i] = b.prepared[i].dataPoint
		}
		var err error
		if sent, err = s.dataPoints.Sent(ctx, ids); err != nil {
			s.journal.Logger.WarnContext(ctx, "query of new data points failed, each is read instead", "err", err)
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
