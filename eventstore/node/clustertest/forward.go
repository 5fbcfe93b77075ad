package clustertest

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	maxMessage = 17 << 20
	// writeTime bounds a write that its caller no longer waits for: a server completes it all the
	// same.
	writeTime = 30 * time.Second
)

// frame is a message as bytes.
type frame struct{ bytes []byte }

// frames passes frames on as they are, and leaves other messages to the protobuf codec.
type frames struct{ encoding.CodecV2 }

func newFrames() frames { return frames{encoding.GetCodecV2(protocodec.Name)} }

// Marshal implements encoding.CodecV2.
func (c frames) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(f.bytes)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c frames) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		f.bytes = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// forward serves every call but gossip.
func (m *member) forward(_ any, call grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(call)
	s, _ := m.now()
	if s.Refuse {
		return errNotReady
	}
	if !strings.Contains(method, "streams.Streams/") {
		return m.pass(call, method)
	}
	required := len(metadata.ValueFromIncomingContext(call.Context(), "requires-leader")) > 0
	name := method[strings.LastIndex(method, "/")+1:]
	refuse := required && s.Leader != m.addr && (name != "Read" || !s.Deaf)
	if refuse && s.Early {
		return notLeader(call, s.Leader)
	}
	m.mu.Lock()
	m.calls++
	m.mu.Unlock()
	switch {
	case name == "Read":
		return m.read(call, method, refuse)
	case name == "BatchAppend":
		return status.Error(codes.Unimplemented, "the member takes appends one by one")
	default:
		return m.write(call, method, refuse)
	}
}

// notLeader refuses a call as a follower does.
func notLeader(call grpc.ServerStream, leader string) error {
	trailers := metadata.Pairs("exception", "not-leader")
	if host, port, err := net.SplitHostPort(leader); err == nil {
		trailers.Append("leader-endpoint-host", host)
		trailers.Append("leader-endpoint-port", port)
	}
	call.SetTrailer(trailers)
	return status.Error(codes.NotFound, "Leader info available")
}

// open begins the call at the node, with the credentials of the caller.
func (m *member) open(ctx context.Context, method string) (grpc.ClientStream, error) {
	for _, header := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", header)
	}
	return m.node.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method,
		grpc.ForceCodecV2(newFrames()), grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage))
}

// receive reads a caller's messages to their end.
func receive(call grpc.ServerStream) (all []*frame, err error) {
	for {
		f := &frame{}
		if err := call.RecvMsg(f); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
}

// pass forwards a call with one answer as it is.
func (m *member) pass(call grpc.ServerStream, method string) error {
	requests, err := receive(call)
	if err != nil {
		return err
	}
	return m.send(call.Context(), call, method, requests, func(f *frame) error { return call.SendMsg(f) })
}

// send forwards the messages of a caller, and hands over the answers.
func (m *member) send(
	ctx context.Context, call grpc.ServerStream, method string, requests []*frame, answer func(*frame) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	to, err := m.open(ctx, method)
	if err != nil {
		return err
	}
	for _, f := range requests {
		if err := to.SendMsg(f); errors.Is(err, io.EOF) {
			break // the answer has the reason
		} else if err != nil {
			return err
		}
	}
	if err := to.CloseSend(); err != nil {
		return err
	}
	for {
		f := &frame{}
		if err := to.RecvMsg(f); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			call.SetTrailer(to.Trailer())
			return err
		}
		if err := answer(f); err != nil {
			return err
		}
	}
}

// begin receives the requests of a call, and holds, delays or refuses it as the script demands.
func (m *member) begin(call grpc.ServerStream, refuse bool) (requests []*frame, s Script, err error) {
	if requests, err = receive(call); err != nil {
		return nil, s, err
	}
	for changed := (<-chan struct{})(nil); ; {
		if s, changed = m.now(); !s.Hold {
			break
		}
		select {
		case <-changed:
		case <-call.Context().Done():
			return nil, s, call.Context().Err()
		}
	}
	time.Sleep(s.Delay)
	if refuse {
		return nil, s, notLeader(call, s.Leader)
	}
	return requests, s, nil
}

// write forwards an append, a deletion or a tombstone. Once it was read, it is done even if its
// caller has gone.
func (m *member) write(call grpc.ServerStream, method string, refuse bool) error {
	requests, s, err := m.begin(call, refuse)
	if err != nil {
		return err
	}
	if m.lose(&m.loseRequests) {
		m.listener.cut()
		return errNotReady // nobody hears it
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(call.Context()), writeTime)
	defer cancel()
	if s.CommitTimeouts && strings.HasSuffix(method, "/Append") {
		committed, err := m.commit(ctx, requests)
		if err != nil {
			return err
		}
		defer committed()
	}
	phase, executed := m.timeOut()
	if phase != "" && !executed {
		return errTimedOut(phase)
	}
	var answers []*frame
	err = m.send(ctx, call, method, requests, func(f *frame) error { answers = append(answers, f); return nil })
	if phase != "" {
		return errTimedOut(phase)
	}
	if m.lose(&m.loseAnswers) {
		m.listener.cut()
		return errNotReady
	}
	for _, f := range answers {
		if err := call.SendMsg(f); err != nil {
			return err
		}
	}
	return err
}

// commit begins to commit an append. It fails if an equal one is being committed.
func (m *member) commit(ctx context.Context, requests []*frame) (committed func(), err error) {
	key, err := appendKey(requests)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if first := m.commits[key]; first != nil {
		m.timedOut++
		first.answered.Do(func() { close(first.twin) })
		return nil, errTimedOut("Commit phase timeout.")
	}
	c := &commit{twin: make(chan struct{})}
	m.commits[key] = c
	if m.awaitTwins > 0 {
		m.awaitTwins--
		m.mu.Unlock()
		select {
		case <-c.twin:
		case <-ctx.Done():
		}
		m.mu.Lock()
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.commits, key)
	}, nil
}

// appendKey is the same for equal appends. The bytes of a message may differ from those of an equal
// one.
func appendKey(requests []*frame) (string, error) {
	var key []byte
	for _, f := range requests {
		request := &streams.AppendReq{}
		if err := proto.Unmarshal(f.bytes, request); err != nil {
			return "", err
		}
		bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
		if err != nil {
			return "", err
		}
		key = append(key, bytes...)
	}
	return string(key), nil
}

// timeOut returns the phase in which the next write is to time out, "" for none, and counts it.
func (m *member) timeOut() (phase string, executed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timeOuts.Writes == 0 {
		return "", false
	}
	m.timeOuts.Writes--
	m.timedOut++
	return m.timeOuts.Phase, m.timeOuts.Executed
}

// errTimedOut is the answer to a write of which the member did not learn in time whether it was
// executed.
func errTimedOut(phase string) error {
	return status.Error(codes.Aborted, "Operation timed out: "+phase)
}

// read forwards a read or a subscription, and shows of it what the member has of the log.
func (m *member) read(call grpc.ServerStream, method string, refuse bool) error {
	requests, s, err := m.begin(call, refuse)
	if err != nil {
		return err
	}
	request := &streams.ReadReq{}
	if len(requests) != 1 {
		return status.Error(codes.InvalidArgument, "a read is one message")
	}
	if err := proto.Unmarshal(requests[0].bytes, request); err != nil {
		return err
	}
	if request.GetOptions().GetSubscription() != nil {
		return m.send(call.Context(), call, method, requests, func(f *frame) error { return m.follow(call, f) })
	}
	if s.Lag == 0 {
		return m.send(call.Context(), call, method, requests, func(f *frame) error { return call.SendMsg(f) })
	}
	return m.readOld(call, method, request, s.Lag)
}

// follow hands over a message of a subscription, an event not before the member has it.
func (m *member) follow(call grpc.ServerStream, f *frame) error {
	at, err := positionOf(f)
	if err != nil {
		return err
	}
	for {
		s, changed := m.now()
		if s.Lag == 0 || at <= s.Lag {
			return call.SendMsg(f)
		}
		select {
		case <-changed:
		case <-call.Context().Done():
			return call.Context().Err()
		}
	}
}

// errEnough ends a read that has all it needs.
var errEnough = errors.New("enough was read")

// readOld reads the log as it was when its newest event was at a position.
func (m *member) readOld(call grpc.ServerStream, method string, request *streams.ReadReq, newest uint64) error {
	left := request.GetOptions().GetCount()
	request.Options.CountOption = &streams.ReadReq_Options_Count{Count: math.MaxInt32}
	text, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	sent := false
	err = m.send(call.Context(), call, method, []*frame{{text}}, func(f *frame) error {
		if at, err := positionOf(f); err != nil || at > newest {
			return err
		}
		if left == 0 {
			return errEnough
		}
		left--
		sent = true
		return call.SendMsg(f)
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if stream := request.GetOptions().GetStream().GetStreamIdentifier(); stream != nil && !sent {
		return call.SendMsg(&streams.ReadResp{Content: &streams.ReadResp_StreamNotFound_{
			StreamNotFound: &streams.ReadResp_StreamNotFound{
				StreamIdentifier: &shared.StreamIdentifier{StreamName: stream.GetStreamName()},
			},
		}})
	}
	return nil
}

// positionOf is the position of the event in an answer, 0 for another answer.
func positionOf(f *frame) (uint64, error) {
	response := &streams.ReadResp{}
	if err := proto.Unmarshal(f.bytes, response); err != nil {
		return 0, err
	}
	return response.GetEvent().GetEvent().GetCommitPosition(), nil
}
