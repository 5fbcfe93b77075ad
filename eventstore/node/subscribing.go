package node

import (
	"context"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
)

// liveEvents is how many events a live subscriber takes from the tail at once.
const liveEvents = 256

// subscribeAll sends the whole log behind a position, and what follows, until the client leaves.
func (s *service) subscribeAll(to *sender, r reading) error {
	after := r.position
	if r.atEnd {
		_, head, err := s.allPage(r.position, false, 0)
		if err != nil {
			return err
		}
		after = head
	}
	if err := to.call.Send(confirmation()); err != nil {
		return err
	}
	told := newCheckpoints(r.filter, after, to.call.Send)
	consider := func(e entry) error {
		wanted, err := r.filter.wants(to.call.Context(), e)
		if err == nil && wanted {
			err = to.send(e)
		}
		if err != nil {
			return err
		}
		return told.considered(e.position)
	}
	for {
		if err := s.catchUpAll(to.call.Context(), &after, consider); err != nil {
			return err
		}
		if err := told.tell(after); err != nil {
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

// catchUpAll hands on what is stored behind after, and moves it.
func (s *service) catchUpAll(ctx context.Context, after *uint64, consider func(entry) error) error {
	for {
		if err := s.interrupted(ctx); err != nil {
			return err
		}
		p, head, err := s.allPage(*after+1, false, pageEvents)
		if err != nil {
			return err
		}
		for _, e := range p.events {
			if err := consider(e); err != nil {
				return err
			}
			*after = e.position
		}
		if p.end {
			*after = max(*after, head)
			return nil
		}
	}
}

// subscribeStream sends the events of one stream behind a revision, and what follows, until the client leaves or the stream is tombstoned.
func (s *service) subscribeStream(to *sender, r reading) error {
	last := r.revision
	if r.atEnd {
		_, state, _, err := s.streamPage(r.stream, r.revision, false, 0)
		if err != nil {
			return err
		}
		last = state.last
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
		err = s.follow(to.call.Context(), &considered, func(e entry) error {
			if e.stream != r.stream || e.revision <= last {
				return nil
			}
			last = e.revision
			if err := to.send(e); err != nil {
				return err
			}
			if e.revision == tombstoneRevision {
				return errStreamDeleted(r.stream)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}

// catchUpStream sends what is stored of a stream behind last, moves it, and returns the position up to which the log was considered.
func (s *service) catchUpStream(to *sender, stream string, last *int64) (uint64, error) {
	for {
		if err := s.interrupted(to.call.Context()); err != nil {
			return 0, err
		}
		if *last == tombstoneRevision { // no revision follows
			_, _, head, err := s.streamPage(stream, *last, false, 0)
			return head, err
		}
		p, _, head, err := s.streamPage(stream, *last+1, false, pageEvents)
		if err != nil {
			return 0, err
		}
		if err := to.sendAll(p.events); err != nil {
			return 0, err
		}
		if len(p.events) > 0 {
			*last = p.events[len(p.events)-1].revision
		}
		if p.end {
			return head, nil
		}
	}
}

// follow hands on the events behind a position as they are written, and moves the position. It returns nil where the
// subscriber fell behind what is in memory: then it catches up again, from the disk.
func (s *service) follow(ctx context.Context, after *uint64, consider func(entry) error) error {
	buf := make([]entry, 0, liveEvents)
	for {
		events, changed, behind := s.node.tail.after(*after, buf[:0])
		if behind {
			return nil
		}
		if len(events) == 0 {
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			case <-s.node.closing:
				return errClosing
			}
			continue
		}
		for _, e := range events {
			if err := consider(e); err != nil {
				return err
			}
			*after = e.position
		}
		clear(events) // what was sent is not kept alive by this buffer
	}
}

// interrupted says why a subscription must end now.
func (s *service) interrupted(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.node.closing:
		return errClosing
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
