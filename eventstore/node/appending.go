package node

import (
	"context"
	"errors"
	"io"
	"math"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
)

// maxAppend is the most bytes of data, metadata and types that one append may carry: the server's default.
const maxAppend = 1 << 20

// An append larger than smallAppend takes one of largeAppends places while it is under way: so many at most are in memory.
const (
	smallAppend  = 64 << 10
	largeAppends = 64
)

// service answers the Streams protocol.
type service struct {
	streams.UnimplementedStreamsServer
	node *Node
	// large holds one token for each large append under way.
	large chan struct{}
}

func newService(n *Node) *service { return &service{node: n, large: make(chan struct{}, largeAppends)} }

// Append stores the events of one client stream, all or none. What is refused is refused after the last message:
// a client that is still sending would lose the answer.
func (s *service) Append(call streams.Streams_AppendServer) error {
	var place place
	defer place.leave()
	r, err := receiveAppend(call, func() error { return place.take(call.Context(), s.large) })
	if err != nil {
		return s.node.fail(call, err)
	}
	d, err := s.node.writer.do(call.Context(), r)
	if err != nil {
		return s.node.fail(call, err)
	}
	switch d.verdict {
	case streamDeleted:
		return s.node.fail(call, errStreamDeleted(r.stream))
	case wrongVersion:
		return call.SendAndClose(wrongVersionResponse(r.expected, d.revision))
	default:
		return call.SendAndClose(successResponse(d))
	}
}

// place is the place of one large append.
type place struct{ among chan struct{} }

// take takes a place, once.
func (p *place) take(ctx context.Context, among chan struct{}) error {
	if p.among != nil {
		return nil
	}
	select {
	case among <- struct{}{}:
		p.among = among
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *place) leave() {
	if p.among != nil {
		<-p.among
	}
}

// receiveAppend reads a whole append, and calls large before it reads on in one that is. Beyond the limit it reads on
// without keeping anything.
func receiveAppend(call streams.Streams_AppendServer, large func() error) (*request, error) {
	first, err := call.Recv()
	if errors.Is(err, io.EOF) {
		return nil, errInvalid("an append begins with its options")
	}
	if err != nil {
		return nil, err
	}
	r := &request{kind: kindAppend}
	refused := r.options(first)
	size := 0
	var msg received
	for {
		err := call.RecvMsg(&msg)
		if errors.Is(err, io.EOF) {
			return r, refused
		}
		if err != nil {
			return nil, err
		}
		if refused != nil {
			continue
		}
		p, counted, err := msg.proposed(r.stream)
		if err == nil {
			if size += counted; size > maxAppend {
				err = errTooLarge(maxAppend)
			}
		}
		if err != nil {
			refused, r.events = err, nil
			continue
		}
		r.events = append(r.events, p)
		if size > smallAppend {
			if err := large(); err != nil {
				return nil, err
			}
		}
	}
}

func (r *request) options(first *streams.AppendReq) error {
	o := first.GetOptions()
	if o == nil {
		return errInvalid("an append begins with its options")
	}
	r.stream = string(o.GetStreamIdentifier().GetStreamName())
	switch e := o.GetExpectedStreamRevision().(type) {
	case *streams.AppendReq_Options_Revision:
		r.expected = exact(e.Revision)
	case *streams.AppendReq_Options_NoStream:
		r.expected = expectation{revision: noStream}
	case *streams.AppendReq_Options_Any:
		r.expected.kind = expectAny
	case *streams.AppendReq_Options_StreamExists:
		r.expected.kind = expectExists
	default:
		return errInvalid("an append says which revision it expects")
	}
	return writable(r.stream)
}

// writable refuses the names that no client may write.
func writable(stream string) error {
	if stream == "" {
		return errInvalid("a stream has a name")
	}
	if isMeta(stream) && (len(stream) == len(metaPrefix) || isMeta(stream[len(metaPrefix):])) {
		return errInvalid("metadata has no metadata")
	}
	return nil
}

func exact(revision uint64) expectation {
	return expectation{revision: int64(min(revision, math.MaxInt64))}
}

// sentEvent is an event as clients send it, in either form of append.
type sentEvent interface {
	GetId() *shared.UUID
	GetMetadata() map[string]string
	GetCustomMetadata() []byte
	GetData() []byte
}

func proposedFrom(stream string, m sentEvent) (proposed, int, error) {
	e, err := sentOf(m)
	if err != nil {
		return proposed{}, 0, err
	}
	return e.proposed(stream)
}

func idOf(id *shared.UUID) (uuid.UUID, error) {
	if text, ok := id.GetValue().(*shared.UUID_String_); ok {
		parsed, err := uuid.Parse(text.String_)
		if err != nil {
			return uuid.Nil, errInvalid("the id of an event is a uuid")
		}
		return parsed, nil
	}
	structured := id.GetStructured()
	return uuidFromHalves(uint64(structured.GetMostSignificantBits()), uint64(structured.GetLeastSignificantBits())), nil
}

func successResponse(d decision) *streams.AppendResp {
	success := &streams.AppendResp_Success{
		CurrentRevisionOption: &streams.AppendResp_Success_CurrentRevision{CurrentRevision: uint64(d.revision)},
		PositionOption:        &streams.AppendResp_Success_NoPosition{NoPosition: &shared.Empty{}},
	}
	if d.revision < 0 {
		success.CurrentRevisionOption = &streams.AppendResp_Success_NoStream{NoStream: &shared.Empty{}}
	}
	if d.position != 0 {
		success.PositionOption = &streams.AppendResp_Success_Position{
			Position: &streams.AppendResp_Position{CommitPosition: d.position, PreparePosition: d.position},
		}
	}
	return &streams.AppendResp{Result: &streams.AppendResp_Success_{Success: success}}
}

// wrongVersionResponse says both forms of the answer: clients before 21.2 read the old one.
func wrongVersionResponse(expected expectation, current int64) *streams.AppendResp {
	empty := &shared.Empty{}
	w := &streams.AppendResp_WrongExpectedVersion{
		CurrentRevisionOption_20_6_0: &streams.AppendResp_WrongExpectedVersion_NoStream_20_6_0{NoStream_20_6_0: empty},
		CurrentRevisionOption:        &streams.AppendResp_WrongExpectedVersion_CurrentNoStream{CurrentNoStream: empty},
	}
	if current >= 0 {
		w.CurrentRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_CurrentRevision_20_6_0{CurrentRevision_20_6_0: uint64(current)}
		w.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: uint64(current)}
	}
	switch {
	case expected.kind == expectAny:
		w.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_Any_20_6_0{Any_20_6_0: empty}
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedAny{ExpectedAny: empty}
	case expected.kind == expectExists:
		w.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_StreamExists_20_6_0{StreamExists_20_6_0: empty}
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedStreamExists{ExpectedStreamExists: empty}
	case expected.revision == noStream:
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: empty}
	default:
		w.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision_20_6_0{ExpectedRevision_20_6_0: uint64(expected.revision)}
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision{ExpectedRevision: uint64(expected.revision)}
	}
	return &streams.AppendResp{Result: &streams.AppendResp_WrongExpectedVersion_{WrongExpectedVersion: w}}
}
