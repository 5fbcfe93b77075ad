package node

import (
	"context"
	"errors"
	"io"
	"math"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/eventstore/node/wire"
)

// maxAppend is the most bytes of data, metadata and types of one append: the server's default.
const maxAppend = 1 << 20

// An append over smallAppend bytes needs one of largeAppends slots, which bounds the memory.
const (
	smallAppend  = 64 << 10
	largeAppends = 64
)

// service serves the Streams protocol.
type service struct {
	streams.UnimplementedStreamsServer
	node *Node
	// large holds one token for each large append in progress.
	large chan struct{}
}

func newService(n *Node) *service { return &service{node: n, large: make(chan struct{}, largeAppends)} }

// Append stores the events of one client stream, all or none. It refuses only after the last
// message: a client that is still sending would lose the answer.
func (s *service) Append(call streams.Streams_AppendServer) error {
	var slot largeSlot
	defer slot.release()
	r, options, err := receiveAppend(call, func() error { return slot.acquire(call.Context(), s.large) })
	if err != nil {
		return s.node.fail(call, err)
	}
	d, err := s.node.engine.Do(call.Context(), r)
	if err != nil {
		return s.node.fail(call, err)
	}
	switch d.Verdict {
	case storage.StreamDeleted:
		return s.node.fail(call, errStreamDeleted(r.Stream))
	case storage.WrongVersion:
		return call.SendAndClose(wrongVersionResponse(options, d.Revision))
	default:
		return call.SendAndClose(successResponse(d))
	}
}

// largeSlot is the slot of one large append.
type largeSlot struct{ slots chan struct{} }

// acquire acquires a slot, once.
func (p *largeSlot) acquire(ctx context.Context, among chan struct{}) error {
	if p.slots != nil {
		return nil
	}
	select {
	case among <- struct{}{}:
		p.slots = among
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *largeSlot) release() {
	if p.slots != nil {
		<-p.slots
	}
}

// receiveAppend reads a whole append. It calls large once the append is over smallAppend bytes.
// Over the limit it reads on without keeping anything.
func receiveAppend(
	call streams.Streams_AppendServer, large func() error,
) (*storage.Request, *streams.AppendReq_Options, error) {
	first, err := call.Recv()
	if errors.Is(err, io.EOF) {
		return nil, nil, errInvalid("an append must begin with its options")
	}
	if err != nil {
		return nil, nil, err
	}
	options := first.GetOptions()
	r := &storage.Request{Kind: storage.KindAppend}
	refused := readAppendOptions(r, options)
	size := 0
	var msg rawMessage
	for {
		err := call.RecvMsg(&msg)
		if errors.Is(err, io.EOF) {
			return r, options, refused
		}
		if err != nil {
			return nil, nil, err
		}
		if refused != nil {
			continue
		}
		p, counted, err := msg.proposed(r.Stream)
		if err == nil {
			if size += counted; size > maxAppend {
				err = errTooLarge(maxAppend)
			}
		}
		if err != nil {
			refused, r.Events = err, nil
			continue
		}
		r.Events = append(r.Events, p)
		if size > smallAppend {
			if err := large(); err != nil {
				return nil, nil, err
			}
		}
	}
}

func readAppendOptions(r *storage.Request, o *streams.AppendReq_Options) (err error) {
	if o == nil {
		return errInvalid("an append must begin with its options")
	}
	r.Stream = string(o.GetStreamIdentifier().GetStreamName())
	if o.GetExpectedStreamRevision() == nil {
		return errInvalid("an append must name the revision that it expects")
	}
	if r.Expected, err = expectation(o); err != nil {
		return err
	}
	return writable(r.Stream)
}

// expecting are the options of an append, a delete or a tombstone.
type expecting interface {
	GetStreamIdentifier() *shared.StreamIdentifier
	GetNoStream() *shared.Empty
	GetAny() *shared.Empty
	GetStreamExists() *shared.Empty
	GetRevision() uint64
}

// expectation decodes the expected revision of an append, a delete or a tombstone. One is set.
func expectation(o expecting) (storage.Expectation, error) {
	switch {
	case o.GetNoStream() != nil:
		return storage.Expectation{Revision: storage.NoStream}, nil
	case o.GetAny() != nil:
		return storage.Expectation{Kind: storage.ExpectAny}, nil
	case o.GetStreamExists() != nil:
		return storage.Expectation{Kind: storage.ExpectExists}, nil
	default:
		return exact(o.GetRevision())
	}
}

// noStreamRevision is the number that stands for "no stream" where a revision is expected.
const noStreamRevision = math.MaxUint64

func exact(revision uint64) (storage.Expectation, error) {
	switch {
	case revision == noStreamRevision:
		return storage.Expectation{Revision: storage.NoStream}, nil
	case revision > math.MaxInt64:
		return storage.Expectation{}, errInvalid(
			"an expected revision must be at most 2^63-1, or 2^64-1 to expect no stream",
		)
	default:
		return storage.Expectation{Revision: int64(revision)}, nil
	}
}

// writable refuses the stream names that no client may write.
func writable(stream string) error {
	if stream == "" {
		return errInvalid("a stream must have a name")
	}
	if storage.IsMeta(stream) &&
		(len(stream) == len(storage.MetaPrefix) || storage.IsMeta(stream[len(storage.MetaPrefix):])) {
		return errInvalid("a metadata stream cannot have metadata")
	}
	return nil
}

// protoEvent is an event as clients send it, in either form of append.
type protoEvent interface {
	GetId() *shared.UUID
	GetMetadata() map[string]string
	GetCustomMetadata() []byte
	GetData() []byte
}

func proposedFrom(stream string, m protoEvent) (storage.Proposed, int, error) {
	e, err := sentOf(m)
	if err != nil {
		return storage.Proposed{}, 0, err
	}
	return e.proposed(stream)
}

func idOf(id *shared.UUID) (uuid.UUID, error) {
	if text, ok := id.GetValue().(*shared.UUID_String_); ok {
		parsed, err := uuid.Parse(text.String_)
		if err != nil {
			return uuid.Nil, errInvalid("the id of an event must be a UUID")
		}
		return parsed, nil
	}
	structured := id.GetStructured()
	return wire.UUIDFromHalves(uint64(structured.GetMostSignificantBits()),
		uint64(structured.GetLeastSignificantBits())), nil
}

func successResponse(d storage.Decision) *streams.AppendResp {
	success := &streams.AppendResp_Success{
		CurrentRevisionOption: &streams.AppendResp_Success_CurrentRevision{CurrentRevision: uint64(d.Revision)},
		PositionOption:        &streams.AppendResp_Success_NoPosition{NoPosition: &shared.Empty{}},
	}
	if d.Revision < 0 {
		success.CurrentRevisionOption = &streams.AppendResp_Success_NoStream{NoStream: &shared.Empty{}}
	}
	if d.Position != 0 {
		success.PositionOption = &streams.AppendResp_Success_Position{
			Position: &streams.AppendResp_Position{CommitPosition: d.Position, PreparePosition: d.Position},
		}
	}
	return &streams.AppendResp{Result: &streams.AppendResp_Success_{Success: success}}
}

// wrongVersionResponse repeats the expectation as the client sent it. It fills both forms of the
// answer: clients before 21.2 read the old one.
func wrongVersionResponse(o *streams.AppendReq_Options, current int64) *streams.AppendResp {
	empty := &shared.Empty{}
	w := &streams.AppendResp_WrongExpectedVersion{
		CurrentRevisionOption_20_6_0: &streams.AppendResp_WrongExpectedVersion_NoStream_20_6_0{NoStream_20_6_0: empty},
		CurrentRevisionOption:        &streams.AppendResp_WrongExpectedVersion_CurrentNoStream{CurrentNoStream: empty},
	}
	if current >= 0 {
		w.CurrentRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_CurrentRevision_20_6_0{
			CurrentRevision_20_6_0: uint64(current),
		}
		w.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: uint64(current)}
	}
	switch e := o.GetExpectedStreamRevision().(type) {
	case *streams.AppendReq_Options_Any:
		w.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_Any_20_6_0{Any_20_6_0: empty}
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedAny{ExpectedAny: empty}
	case *streams.AppendReq_Options_StreamExists:
		w.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_StreamExists_20_6_0{
			StreamExists_20_6_0: empty,
		}
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedStreamExists{ExpectedStreamExists: empty}
	case *streams.AppendReq_Options_NoStream: // the old form has no word for it
		w.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision_20_6_0{
			ExpectedRevision_20_6_0: noStreamRevision,
		}
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: empty}
	case *streams.AppendReq_Options_Revision:
		w.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision_20_6_0{
			ExpectedRevision_20_6_0: e.Revision,
		}
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision{ExpectedRevision: e.Revision}
	}
	return &streams.AppendResp{Result: &streams.AppendResp_WrongExpectedVersion_{WrongExpectedVersion: w}}
}

// Delete hides a stream until it is written again.
func (s *service) Delete(ctx context.Context, in *streams.DeleteReq) (*streams.DeleteResp, error) {
	o := in.GetOptions()
	position, err := s.end(ctx, storage.KindDelete, "a delete", o, o.GetExpectedStreamRevision() != nil)
	if err != nil {
		return nil, s.node.failUnary(ctx, err)
	}
	return &streams.DeleteResp{PositionOption: &streams.DeleteResp_Position_{
		Position: &streams.DeleteResp_Position{CommitPosition: position, PreparePosition: position},
	}}, nil
}

// Tombstone ends a stream permanently.
func (s *service) Tombstone(ctx context.Context, in *streams.TombstoneReq) (*streams.TombstoneResp, error) {
	o := in.GetOptions()
	position, err := s.end(ctx, storage.KindTombstone, "a tombstone", o, o.GetExpectedStreamRevision() != nil)
	if err != nil {
		return nil, s.node.failUnary(ctx, err)
	}
	return &streams.TombstoneResp{PositionOption: &streams.TombstoneResp_Position_{
		Position: &streams.TombstoneResp_Position{CommitPosition: position, PreparePosition: position},
	}}, nil
}

// end deletes or tombstones a stream.
func (s *service) end(
	ctx context.Context, kind storage.Kind, what string, o expecting, expects bool,
) (position uint64, err error) {
	if !expects {
		return 0, errInvalid(what + " must name the revision that it expects")
	}
	r := &storage.Request{Kind: kind, Stream: string(o.GetStreamIdentifier().GetStreamName())}
	if r.Expected, err = expectation(o); err != nil {
		return 0, err
	}
	if err := writable(r.Stream); err != nil {
		return 0, err
	}
	d, err := s.node.engine.Do(ctx, r)
	if err != nil {
		return 0, err
	}
	switch d.Verdict {
	case storage.StreamDeleted:
		return 0, errStreamDeleted(r.Stream)
	case storage.MetastreamDeleted:
		return 0, errStreamDeleted(storage.MetaPrefix + r.Stream)
	case storage.WrongVersion:
		return 0, errWrongVersion(r.Stream, r.Expected, d.Revision)
	default:
		return d.Position, nil
	}
}
