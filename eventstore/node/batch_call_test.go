package node

import (
	"context"
	"errors"
	"io"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/internal/runtest"
)

// batchCall is a BatchAppend call of a test.
type batchCall struct {
	t      runtest.T
	call   streams.Streams_BatchAppendClient
	cancel context.CancelFunc
}

func (c client) batchAppend() batchCall {
	c.t.Helper()
	ctx, cancel := context.WithCancel(runtest.Context(c.t))
	call, err := c.BatchAppend(ctx)
	if err != nil {
		cancel()
		c.t.Fatal(err)
	}
	return batchCall{c.t, call, cancel}
}

func (b batchCall) send(part *streams.BatchAppendReq) {
	b.t.Helper()
	if err := b.call.Send(part); err != nil {
		b.t.Fatal(err)
	}
}

func (b batchCall) receive() *streams.BatchAppendResp {
	b.t.Helper()
	resp, err := b.call.Recv()
	if err != nil {
		b.t.Fatal(err)
	}
	return resp
}

// end closes the sending side and expects no further answer.
func (b batchCall) end() {
	b.t.Helper()
	defer b.cancel()
	if err := b.call.CloseSend(); err != nil {
		b.t.Fatal(err)
	}
	if resp, err := b.call.Recv(); !errors.Is(err, io.EOF) {
		b.t.Fatalf("one more answer: %v, %v", resp, err)
	}
}

// stop ends the call and expects no further answer. A genuine EventStoreDB goes on after the client closed its side.
func (b batchCall) stop() {
	b.t.Helper()
	if err := b.call.CloseSend(); err != nil {
		b.t.Fatal(err)
	}
	b.cancel()
	if resp, err := b.call.Recv(); err == nil {
		b.t.Fatalf("one more answer: %v", resp)
	}
}

// one sends an append and receives its answer.
func (b batchCall) one(part *streams.BatchAppendReq) *streams.BatchAppendResp {
	b.t.Helper()
	b.send(part)
	resp := b.receive()
	if !proto.Equal(resp.GetCorrelationId(), part.GetCorrelationId()) {
		b.t.Fatalf("answer to %v, want %v", resp.GetCorrelationId(), part.GetCorrelationId())
	}
	return resp
}

// part is a whole append with an id of its own; options is nil for a later part.
func part(stream string, expected storage.Expectation, events ...event) *streams.BatchAppendReq {
	o := &streams.BatchAppendReq_Options{StreamIdentifier: nameOf(stream)}
	switch {
	case expected.Kind == storage.ExpectAny:
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_Any{Any: &emptypb.Empty{}}
	case expected.Kind == storage.ExpectExists:
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_StreamExists{StreamExists: &emptypb.Empty{}}
	case expected.Revision < 0:
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_NoStream{NoStream: &emptypb.Empty{}}
	default:
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_StreamPosition{StreamPosition: uint64(expected.Revision)}
	}
	return &streams.BatchAppendReq{
		CorrelationId:    structuredID(uuid.New()),
		Options:          o,
		ProposedMessages: batchMessages(events),
		IsFinal:          true,
	}
}

// more is a later part of an append.
func more(of *streams.BatchAppendReq, final bool, events ...event) *streams.BatchAppendReq {
	return &streams.BatchAppendReq{
		CorrelationId:    of.GetCorrelationId(),
		ProposedMessages: batchMessages(events),
		IsFinal:          final,
	}
}

func batchMessages(events []event) []*streams.BatchAppendReq_ProposedMessage {
	var out []*streams.BatchAppendReq_ProposedMessage
	for _, e := range events {
		m := e.message().GetProposedMessage()
		out = append(out, &streams.BatchAppendReq_ProposedMessage{
			Id:             m.GetId(),
			Metadata:       m.GetMetadata(),
			CustomMetadata: m.GetCustomMetadata(),
			Data:           m.GetData(),
		})
	}
	return out
}

func unfinished(p *streams.BatchAppendReq) *streams.BatchAppendReq {
	p.IsFinal = false
	return p
}

// detail returns the details of a refusal.
func detail(t runtest.T, resp *streams.BatchAppendResp) (codes.Code, proto.Message) {
	t.Helper()
	if resp.GetError() == nil {
		t.Fatalf("not refused: %v", resp)
	}
	s := status.FromProto(resp.GetError())
	if len(s.Details()) != 1 {
		t.Fatalf("details %v", s.Details())
	}
	m, ok := s.Details()[0].(proto.Message)
	if !ok {
		t.Fatalf("detail %v", s.Details()[0])
	}
	return s.Code(), m
}
