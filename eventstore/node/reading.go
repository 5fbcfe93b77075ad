package node

import (
	"errors"
	"math"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
)

// reading is what a client asks to read.
type reading struct {
	// stream is the name of a stream, empty for the whole log.
	stream    string
	backwards bool
	// position and revision are where it begins, by the rules of the protocol. atEnd: behind the last event.
	position uint64
	revision int64
	atEnd    bool
	// count is how many events a read asks for; subscribe asks for all that come.
	count     uint64
	subscribe bool
	// filter is nil where everything is wanted; only the whole log is filtered.
	filter *filter
	// textIDs and resolveLinks are forms of the answer.
	textIDs, resolveLinks bool
}

// Read reads a stream or the whole log, or subscribes to one.
func (s *service) Read(in *streams.ReadReq, call streams.Streams_ReadServer) error {
	r, err := readingOf(in.GetOptions())
	if err != nil {
		return s.node.fail(call, err)
	}
	to := &sender{call: call, views: s.node.views, textIDs: r.textIDs, resolve: r.resolveLinks}
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

func readingOf(o *streams.ReadReq_Options) (reading, error) {
	var r reading
	r.backwards = o.GetReadDirection() == streams.ReadReq_Options_Backwards
	switch c := o.GetCountOption().(type) {
	case *streams.ReadReq_Options_Count:
		r.count = c.Count
	case *streams.ReadReq_Options_Subscription:
		r.subscribe = true
	default:
		return r, errInvalid("a read says how many events, or subscribes")
	}
	if r.subscribe && r.backwards {
		return r, errInvalid("a subscription goes forwards")
	}
	_, r.textIDs = o.GetUuidOption().GetContent().(*streams.ReadReq_Options_UUIDOption_String_)
	r.resolveLinks = o.GetResolveLinks()
	var err error
	if r.filter, err = filterOf(o.GetFilter()); err != nil {
		return r, err
	}
	switch from := o.GetStreamOption().(type) {
	case *streams.ReadReq_Options_All:
		return r, r.fromAll(from.All)
	case *streams.ReadReq_Options_Stream:
		if r.filter != nil {
			return r, errInvalid("only the whole log is filtered")
		}
		return r, r.fromStream(from.Stream)
	}
	return r, errInvalid("a read names a stream or the whole log")
}

func (r *reading) fromAll(o *streams.ReadReq_Options_AllOptions) error {
	switch from := o.GetAllOption().(type) {
	case *streams.ReadReq_Options_AllOptions_Position:
		r.position = from.Position.GetCommitPosition()
		r.atEnd = r.position == math.MaxUint64
	case *streams.ReadReq_Options_AllOptions_Start:
	case *streams.ReadReq_Options_AllOptions_End:
		r.position, r.atEnd = math.MaxUint64, true
	default:
		return errInvalid("a read of the whole log says where it begins")
	}
	return nil
}

func (r *reading) fromStream(o *streams.ReadReq_Options_StreamOptions) error {
	r.stream = string(o.GetStreamIdentifier().GetStreamName())
	if r.stream == "" {
		return errInvalid("a stream has a name")
	}
	switch from := o.GetRevisionOption().(type) {
	case *streams.ReadReq_Options_StreamOptions_Revision:
		r.revision = int64(min(from.Revision, math.MaxInt64))
	case *streams.ReadReq_Options_StreamOptions_Start:
		if r.subscribe {
			r.revision = -1 // a subscription begins behind its revision
		}
	case *streams.ReadReq_Options_StreamOptions_End:
		r.revision, r.atEnd = math.MaxInt64, true
	default:
		return errInvalid("a read of a stream says where it begins")
	}
	return nil
}

// readAll answers a read of the whole log: forwards from a position (inclusive), backwards from below it.
func (s *service) readAll(to *sender, r reading) error {
	from, left := r.position, r.count
	for left > 0 {
		limit := left
		if r.filter != nil { // what passes the filter is counted, not what is considered
			limit = pageEvents
		}
		p, _, err := s.allPage(from, r.backwards, limit)
		if err != nil {
			return err
		}
		for _, e := range p.events {
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
		if p.end {
			return nil
		}
		if err := s.interrupted(to.call.Context()); err != nil {
			return err
		}
		from = p.events[len(p.events)-1].position
		if !r.backwards {
			from++
		}
	}
	return nil
}

// readStream answers a read of one stream, inclusive of its first revision in both directions.
func (s *service) readStream(to *sender, r reading) error {
	from, left := r.revision, r.count
	for first := true; first || left > 0; first = false {
		p, state, _, err := s.streamPage(r.stream, from, r.backwards, left)
		if err != nil {
			return err
		}
		if first && !state.exists() {
			return to.call.Send(streamNotFound(r.stream))
		}
		if left == 0 {
			return nil
		}
		if err := to.sendAll(p.events); err != nil {
			return err
		}
		if p.end {
			return nil
		}
		if err := s.interrupted(to.call.Context()); err != nil {
			return err
		}
		left -= uint64(len(p.events))
		from = p.events[len(p.events)-1].revision + 1
		if r.backwards {
			if from -= 2; from < 0 {
				return nil
			}
		}
	}
	return nil
}

// allPage reads one page of the whole log under the newest view, whose head it returns.
func (s *service) allPage(from uint64, backwards bool, limit uint64) (p page, head uint64, err error) {
	v, err := s.node.views.acquire()
	if err != nil {
		return p, 0, err
	}
	p, err = v.all(from, backwards, int(min(limit, pageEvents)))
	return p, v.head, errors.Join(err, v.release())
}

// streamPage reads one page of a stream under the newest view. A tombstoned stream is an error.
func (s *service) streamPage(stream string, from int64, backwards bool, limit uint64) (p page, state *streamState, head uint64, err error) {
	v, err := s.node.views.acquire()
	if err != nil {
		return p, nil, 0, err
	}
	if state, err = v.state(stream); err == nil && state.deleted() {
		err = errStreamDeleted(stream)
	}
	if err == nil {
		p, err = v.stream(state, from, backwards, int(min(limit, pageEvents)), s.node.now())
	}
	return p, state, v.head, errors.Join(err, v.release())
}

// state returns the state of a stream as readers see it: a tombstone ends the metadata of its stream too.
func (v *view) state(stream string) (*streamState, error) {
	s, err := loadState(v.snapshot, stream)
	if err != nil || !isMeta(stream) {
		return s, err
	}
	original, err := loadState(v.snapshot, stream[len(metaPrefix):])
	if err != nil {
		return nil, err
	}
	s.tombstone = original.tombstone
	return s, nil
}

func streamNotFound(stream string) *streams.ReadResp {
	return &streams.ReadResp{Content: &streams.ReadResp_StreamNotFound_{StreamNotFound: &streams.ReadResp_StreamNotFound{
		StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)},
	}}}
}
