package node

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annals-project/annals/eventstore/node/wire"
	"github.com/annals-project/annals/internal/runtest"
)

// TestProtocol_MessageSize: a message over the limit of the transport, 16 MiB, ends its call with ResourceExhausted.
// The connection remains. A smaller message over the limit of an append, 1 MiB, is refused as an append.
func TestProtocol_MessageSize(t *testing.T) {
	const (
		below, above = 15 << 20, 18 << 20
		appended     = "Maximum Append Size of 1048576 Exceeded."
		transport    = "Received message exceeds the maximum configured message size."
	)
	c := protocolServer(t, Config{}).dial(t)
	stream := unused("large")
	exchange := func(method string, messages ...proto.Message) error {
		call, err := c.conn.NewStream(
			runtest.Context(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			"/"+streams.Streams_ServiceDesc.ServiceName+"/"+method)
		runtest.Must(t, err)
		for _, m := range messages {
			if err := call.SendMsg(m); err != nil && !errors.Is(err, io.EOF) { // the answer may have come first
				t.Fatal(err)
			}
		}
		runtest.Must(t, call.CloseSend())
		return call.RecvMsg(&streams.ReadResp{})
	}
	for _, tt := range []struct {
		name string
		err  error
		code codes.Code
		text string
	}{
		{
			"append",
			exchange("Append", appendOptions(stream, anyRevision), newEvent(strings.Repeat("x", above)).message()),
			codes.ResourceExhausted, transport,
		},
		{
			"append below",
			exchange("Append", appendOptions(stream, anyRevision), newEvent(strings.Repeat("x", below)).message()),
			codes.InvalidArgument, appended,
		},
		{
			"batch",
			exchange("BatchAppend", &streams.BatchAppendReq{
				CorrelationId: structuredID(uuid.New()), IsFinal: true,
				Options: &streams.BatchAppendReq_Options{
					StreamIdentifier:       nameOf(stream),
					ExpectedStreamPosition: &streams.BatchAppendReq_Options_Any{Any: &emptypb.Empty{}},
				},
				ProposedMessages: []*streams.BatchAppendReq_ProposedMessage{{
					Id: structuredID(uuid.New()), Data: make([]byte, above),
					Metadata: map[string]string{wire.KeyType: "tested", wire.KeyContentType: wire.ContentTypeRaw},
				}},
			}),
			codes.ResourceExhausted, transport,
		},
		{
			"read",
			exchange("Read", readOf(ofStream(strings.Repeat("x", above)))), codes.ResourceExhausted, transport,
		},
		{
			"delete",
			exchange("Delete", &streams.DeleteReq{Options: &streams.DeleteReq_Options{
				StreamIdentifier: nameOf(strings.Repeat("x", above)),
			}}),
			codes.ResourceExhausted, transport,
		},
		{
			"tombstone",
			exchange("Tombstone", &streams.TombstoneReq{Options: &streams.TombstoneReq_Options{
				StreamIdentifier: nameOf(strings.Repeat("x", above)),
			}}),
			codes.ResourceExhausted, transport,
		},
	} {
		if status.Code(tt.err) != tt.code || message(tt.err) != tt.text {
			t.Errorf("%s: %.200v", tt.name, tt.err)
		}
	}
	if _, found, _, err := c.tryRead(ofStream(stream)); found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
}

// A deletion without a request is refused.
func TestDelete_WithoutRequest(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	for _, method := range []string{"/Delete", "/Tombstone"} {
		call, err := c.conn.NewStream(
			runtest.Context(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			"/"+streams.Streams_ServiceDesc.ServiceName+method)
		runtest.Must(t, err)
		runtest.Must(t, call.CloseSend())
		if err := call.RecvMsg(&streams.DeleteResp{}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// A message that is too long to be received whole ends its call with the same code.
func TestMessageSize_NotReceived(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	_, err := c.tryAppend(runtest.Context(t), "long", anyRevision, newEvent(strings.Repeat("x", maxReceived)))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %.200v", err)
	}
}
