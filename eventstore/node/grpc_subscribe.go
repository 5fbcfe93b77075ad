package node

import (
	"context"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore/node/storage"
)

// liveEvents is how many events a live subscriber takes from memory at once.
const liveEvents = 256

// subscribeAll sends the whole log after a position, and what follows, until the client leaves.
func (s *service) subscribeAll(to *sender, r readSpec) error {
	after := r.position
	if r.atEnd {
		_, head, err := s.node.engine.ReadAll(r.position, false, 0)
		if err != nil {
			return err
		}
		after = head
	}
	if err := to.call.Send(confirmation()); err != nil {
		return err
	}
	sent := newCheckpoints(r.filter, after, to.call.Send)
	consider := func(e storage.Entry) error {
		wanted, err := r.filter.wants(to.call.Context(), e)
		if err == nil && wanted {
			err = to.send(e)
		}
		if err != nil {
			return err
		}
		return sent.count(e.Position)
	}
	for {
		if err := s.catchUpAll(to.call.Context(), &after, consider); err != nil {
			return err
		}
		if err := sent.sendAt(after); err != nil {
			return err
		}
		if err := to.call.Send(caughtUp()); err != nil {
			return err
		}
		if err := s.follow(to.call.Context(), &after, consider); err != nil {
			return err
		}
	}
}

// catchUpAll passes on what is stored after a position, and advances it.
func (s *service) catchUpAll(ctx context.Context, after *uint64, consider func(storage.Entry) error) error {
	for {
		if err := s.interrupted(ctx); err != nil {
			return err
		}
		p, head, err := s.node.engine.ReadAll(*after+1, false, storage.PageEvents)
		if err != nil {
			return err
		}
		for _, e := range p.Events {
			if err := consider(e); err != nil {
				return err
			}
			*after = e.Position
		}
		if p.End {
			*after = max(*after, head)
			return nil
		}
	}
}

// subscribeStream sends the events of one stream after a revision, and what follows, until the
// client leaves or the stream is tombstoned.
func (s *service) subscribeStream(to *sender, r readSpec) error {
	last := r.revision
	if r.atEnd {
		_, status, _, err := s.node.streamPage(r.stream, r.revision, false, 0)
		if err != nil {
			return err
		}
		last = status.Last
	}
	if err := to.call.Send(confirmation()); err != nil {
		return err
	}
	for {
		considered, err := s.catchUpStream(to, r.stream, &last)
		if err != nil {
			return err
		}
		if err := to.call.Send(caughtUp()); err != nil {
			return err
		}
		err = s.follow(to.call.Context(), &considered, func(e storage.Entry) error {
			if e.Stream != r.stream || e.Revision <= last {
				return nil
			}
			last = e.Revision
			if err := to.send(e); err != nil {
				return err
			}
			if e.Revision == storage.TombstoneRevision {
				return errStreamDeleted(r.stream)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}

// catchUpStream sends what is stored of a stream after a revision, and advances it. It returns the
// position up to which the log was considered.
func (s *service) catchUpStream(to *sender, stream string, last *int64) (uint64, error) {
	for {
		if err := s.interrupted(to.call.Context()); err != nil {
			return 0, err
		}
		if *last == storage.TombstoneRevision { // no revision follows
			_, _, head, err := s.node.streamPage(stream, *last, false, 0)
			return head, err
		}
		p, _, head, err := s.node.streamPage(stream, *last+1, false, storage.PageEvents)
		if err != nil {
			return 0, err
		}
		if err := to.sendAll(p.Events); err != nil {
			return 0, err
		}
		if len(p.Events) > 0 {
			*last = p.Events[len(p.Events)-1].Revision
		}
		if p.End {
			return head, nil
		}
	}
}

// follow passes on events after a position as they are written, and advances the position. It
// returns nil if the subscriber lags further than what is in memory: then it catches up from the
// disk.
func (s *service) follow(ctx context.Context, after *uint64, consider func(storage.Entry) error) error {
	buf := make([]storage.Entry, 0, liveEvents)
	for {
		events, changed, evicted := s.node.engine.Tail(*after, buf[:0])
		if evicted {
			return nil
		}
		if len(events) == 0 {
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			case <-s.node.closing:
				return storage.ErrClosing
			}
			continue
		}
		for _, e := range events {
			if err := consider(e); err != nil {
				return err
			}
			*after = e.Position
		}
		clear(events) // release the records that were sent
	}
}

// interrupted returns the reason why a call must end now, nil if there is none.
func (s *service) interrupted(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.node.closing:
		return storage.ErrClosing
	default:
		return nil
	}
}

func confirmation() *streams.ReadResp {
	return &streams.ReadResp{Content: &streams.ReadResp_Confirmation{
		Confirmation: &streams.ReadResp_SubscriptionConfirmation{SubscriptionId: uuid.NewString()},
	}}
}

func caughtUp() *streams.ReadResp {
	return &streams.ReadResp{Content: &streams.ReadResp_CaughtUp_{CaughtUp: &streams.ReadResp_CaughtUp{}}}
}
