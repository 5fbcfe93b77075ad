package node

import (
	"context"
	"math"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore/node/storage"
)

// readSpec is what a client wants to read.
type readSpec struct {
	// stream is the name of a stream, empty for the whole log.
	stream    string
	backwards bool
	// position and revision are where the read begins, by the rules of the protocol; atEnd: after
	// the last event.
	position uint64
	revision int64
	atEnd    bool
	// count is the most events of a read; subscribe continues without end.
	count     uint64
	subscribe bool
	// filter is nil if everything is wanted; only the whole log can be filtered.
	filter *filter
	// textIDs and resolveLinks select the form of the answer. positions adds where the stream begins and ends.
	textIDs, resolveLinks, positions bool
}

// serverPage is how many events a server reads at once. Clients see it only in first_stream_position.
const serverPage = 32

// Read reads a stream or the whole log, or subscribes to one.
func (s *service) Read(in *streams.ReadReq, call streams.Streams_ReadServer) error {
	r, err := parseRead(in.GetOptions())
	if err != nil {
		return s.node.fail(call, err)
	}
	to := &sender{call: call, engine: s.node.engine, textIDs: r.textIDs, resolve: r.resolveLinks}
	switch {
	case r.subscribe && r.stream == "":
		err = s.subscribeAll(to, r)
	case r.subscribe:
		err = s.subscribeStream(to, r)
	case r.stream == "":
		err = s.readAll(to, r)
	default:
		err = s.readStream(to, r)
	}
	return s.node.fail(call, err)
}

func parseRead(o *streams.ReadReq_Options) (readSpec, error) {
	var r readSpec
	r.backwards = o.GetReadDirection() == streams.ReadReq_Options_Backwards
	switch c := o.GetCountOption().(type) {
	case *streams.ReadReq_Options_Count:
		r.count = c.Count
	case *streams.ReadReq_Options_Subscription:
		r.subscribe = true
	default:
		return r, errInvalid("a read must have a count or be a subscription")
	}
	if r.subscribe && r.backwards {
		return r, errInvalid("a subscription must read forwards")
	}
	_, r.textIDs = o.GetUuidOption().GetContent().(*streams.ReadReq_Options_UUIDOption_String_)
	r.resolveLinks, r.positions = o.GetResolveLinks(), o.GetControlOption().GetCompatibility() >= 1
	var err error
	if r.filter, err = parseFilter(o.GetFilter(), r.subscribe); err != nil {
		return r, err
	}
	switch from := o.GetStreamOption().(type) {
	case *streams.ReadReq_Options_All:
		return r, r.fromAll(from.All)
	case *streams.ReadReq_Options_Stream:
		if r.filter != nil {
			return r, errInvalid("a filter requires a read of the whole log")
		}
		return r, r.fromStream(from.Stream)
	}
	return r, errInvalid("a read must name a stream or the whole log")
}

func (r *readSpec) fromAll(o *streams.ReadReq_Options_AllOptions) error {
	switch from := o.GetAllOption().(type) {
	case *streams.ReadReq_Options_AllOptions_Position:
		r.position = from.Position.GetCommitPosition()
		r.atEnd = r.position == math.MaxUint64
		if from.Position.GetPreparePosition() > r.position {
			return errInvalid("the prepare position must not be after the commit position")
		}
	case *streams.ReadReq_Options_AllOptions_Start:
	case *streams.ReadReq_Options_AllOptions_End:
		r.position, r.atEnd = math.MaxUint64, true
	default:
		return errInvalid("a read of the whole log must name its first position")
	}
	return nil
}

func (r *readSpec) fromStream(o *streams.ReadReq_Options_StreamOptions) error {
	r.stream = string(o.GetStreamIdentifier().GetStreamName())
	if r.stream == "" {
		return errInvalid("a stream must have a name")
	}
	switch from := o.GetRevisionOption().(type) {
	case *streams.ReadReq_Options_StreamOptions_Revision:
		r.revision = int64(min(from.Revision, math.MaxInt64))
		r.atEnd = from.Revision == math.MaxUint64
		if from.Revision > math.MaxInt64 && !r.atEnd {
			return errInvalid("a revision must be less than 2^63, or 2^64-1 for the end")
		}
	case *streams.ReadReq_Options_StreamOptions_Start:
		if r.subscribe {
			r.revision = -1 // a subscription begins after its revision
		}
	case *streams.ReadReq_Options_StreamOptions_End:
		r.revision, r.atEnd = math.MaxInt64, true
	default:
		return errInvalid("a read of a stream must name its first revision")
	}
	switch {
	case r.subscribe:
		return nil
	case r.count == 0:
		return errInvalid("a read of a stream must have a count")
	case r.atEnd && !r.backwards:
		return errInvalid("a read of a stream forwards must not begin at its end")
	}
	return nil
}

// readAll serves a read of the whole log: forwards from a position (inclusive), backwards from
// below it.
func (s *service) readAll(to *sender, r readSpec) error {
	from, left := r.position, r.count
	for left > 0 {
		limit := left
		if r.filter != nil { // count what passes the filter
			limit = storage.PageEvents
		}
		p, _, err := s.node.engine.ReadAll(from, r.backwards, limit)
		if err != nil {
			return err
		}
		for _, e := range p.Events {
			wanted, err := r.filter.wants(to.call.Context(), e)
			if err != nil {
				return err
			}
			if !wanted {
				continue
			}
			if err := to.send(e); err != nil {
				return err
			}
			if left--; left == 0 {
				return nil
			}
		}
		if p.End {
			return nil
		}
		if err := s.interrupted(to.call.Context()); err != nil {
			return err
		}
		from = p.Events[len(p.Events)-1].Position
		if !r.backwards {
			from++
		}
	}
	return nil
}

// readStream serves a read of one stream, from its first revision (inclusive) in either direction.
func (s *service) readStream(to *sender, r readSpec) error {
	from, left := r.revision, r.count
	for first := true; ; first = false {
		p, status, _, err := s.node.streamPage(r.stream, from, r.backwards, left)
		if err != nil {
			return err
		}
		if first && !status.Exists {
			return to.call.Send(streamNotFound(r.stream))
		}
		if first && r.positions && !r.backwards {
			if err := s.sendFirstPosition(to, r, p.Events, status.Last); err != nil {
				return err
			}
		}
		if err := to.sendAll(p.Events); err != nil {
			return err
		}
		left -= uint64(len(p.Events))
		if !p.End && left > 0 {
			from = p.Events[len(p.Events)-1].Revision + 1
			if r.backwards {
				from -= 2
			}
		}
		if p.End || left == 0 || from < 0 {
			return s.sendLastPosition(to, r, status.Last)
		}
		if err := s.interrupted(to.call.Context()); err != nil {
			return err
		}
	}
}

// sendFirstPosition sends first_stream_position as a server does, which reads pages of serverPage events, or of the
// count if that is smaller. If nothing of its first page is visible, because the events are truncated or expired or not
// there yet, it sends where its next page begins: at the first visible event, or after the last one if there is none.
// It sends nothing if that is where the read began.
func (s *service) sendFirstPosition(to *sender, r readSpec, visible []storage.Entry, last int64) error {
	next := last + 1
	if len(visible) > 0 {
		next = visible[0].Revision
		if uint64(next-r.revision) < min(serverPage, r.count) {
			return nil
		}
	}
	if next == r.revision {
		return nil
	}
	return to.call.Send(&streams.ReadResp{
		Content: &streams.ReadResp_FirstStreamPosition{FirstStreamPosition: uint64(next)},
	})
}

// sendLastPosition ends a read, with the newest revision of the stream if the client requested it.
func (s *service) sendLastPosition(to *sender, r readSpec, last int64) error {
	if !r.positions {
		return nil
	}
	return to.call.Send(&streams.ReadResp{
		Content: &streams.ReadResp_LastStreamPosition{LastStreamPosition: uint64(last)},
	})
}

// streamPage reads one page of a stream. A tombstoned stream is an error.
func (n *Node) streamPage(
	stream string, from int64, backwards bool, limit uint64,
) (p storage.Page, status storage.StreamStatus, head uint64, err error) {
	p, status, head, err = n.engine.ReadStream(stream, from, backwards, limit)
	if err == nil && status.Tombstoned {
		err = errStreamDeleted(stream)
	}
	return p, status, head, err
}

func streamNotFound(stream string) *streams.ReadResp {
	return &streams.ReadResp{Content: &streams.ReadResp_StreamNotFound_{StreamNotFound: &streams.ReadResp_StreamNotFound{
		StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)},
	}}}
}

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
