package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/eventstore/node/wire"
	"github.com/annals-project/annals/internal/runtest"
)

func wireOf(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	runtest.Must(t, err)
	return b
}

func TestDecode_UsualEvent(t *testing.T) {
	for _, e := range []event{
		newEvent(`{"n":1}`),
		{id: uuid.New(), typ: "tested", data: "raw", meta: `{"by":"us"}`, raw: true},
		{id: uuid.Max, typ: "größer"},
	} {
		b := wireOf(t, e.message())
		got, usual := decodeCommonEvent(b)
		if !usual {
			t.Errorf("%v is not usual", e)
		}
		if got.id != e.id || got.typ != e.typ || string(got.data) != e.data || string(got.meta) != e.meta ||
			(got.contentType != wire.ContentTypeJSON) != e.raw {
			t.Errorf("got %+v of %+v", got, e)
		}
	}
}

func TestDecode_UnusualEvent(t *testing.T) {
	id := uuid.New()
	system := map[string]string{
		wire.KeyType:        "tested",
		wire.KeyContentType: wire.ContentTypeJSON,
		"more":              "that nobody reads",
	}
	as := func(id *shared.UUID, system map[string]string) []byte {
		return wireOf(t, &streams.AppendReq{Content: &streams.AppendReq_ProposedMessage_{
			ProposedMessage: &streams.AppendReq_ProposedMessage{Id: id, Metadata: system, Data: []byte(`{}`)},
		}})
	}
	text := &shared.UUID{Value: &shared.UUID_String_{String_: id.String()}}
	twice := append(as(structuredID(uuid.New()), system), as(structuredID(id), system)...)
	for name, b := range map[string][]byte{"text id": as(text, system), "more metadata": as(structuredID(id), system), "said twice": twice} {
		if _, usual := decodeCommonEvent(b); usual {
			t.Errorf("%s: it is usual", name)
		}
		m := rawMessage{bytes: b}
		e, err := m.event()
		if err != nil || e.id != id || e.typ != "tested" || e.contentType != wire.ContentTypeJSON || string(e.data) != `{}` {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	m := rawMessage{bytes: []byte("\xff\xff nonsense")}
	if e, err := m.event(); err == nil {
		t.Errorf("nonsense was read as %+v", e)
	}
	m = rawMessage{bytes: wireOf(t, appendOptions("s", none))}
	if e, err := m.event(); err == nil {
		t.Errorf("options were read as %+v", e)
	}
}

func TestDecode_EventDoesNotRetainMessage(t *testing.T) {
	e := newEvent(`{"$tb":3}`)
	m := rawMessage{bytes: wireOf(t, e.message())}
	p, _, err := m.proposed("$$stream")
	runtest.Must(t, err)
	before := p.Record(0, 1, "1")
	clear(m.bytes) // the next message comes
	if after := p.Record(0, 1, "1"); !bytes.Equal(after, before) || !bytes.Contains(after, []byte(e.data)) {
		t.Errorf("the event changed with the message: %q", after)
	}
}

// FuzzUsualEvent proves that the quick way of reading an event reads what the general one does,
// wherever it reads anything.
func FuzzUsualEvent(f *testing.F) {
	f.Add(wireOf(f, newEvent(`{}`).message()))
	f.Add(wireOf(f, event{id: uuid.New(), typ: "t", meta: "m", raw: true}.message()))
	f.Add(wireOf(f, appendOptions("s", anyRevision)))
	f.Fuzz(func(t *testing.T, b []byte) {
		quick, usual := decodeCommonEvent(b)
		if !usual {
			return
		}
		msg := &streams.AppendReq{}
		if err := proto.Unmarshal(b, msg); err != nil {
			t.Fatalf("no message: %v", err)
		}
		if msg.GetProposedMessage() == nil {
			t.Fatal("no event")
		}
		general, err := sentOf(msg.GetProposedMessage())
		runtest.Must(t, err)
		if quick.id != general.id || quick.typ != general.typ ||
			quick.hasType != general.hasType || quick.hasContentType != general.hasContentType ||
			(quick.contentType == wire.ContentTypeJSON) != (general.contentType == wire.ContentTypeJSON) ||
			!bytes.Equal(quick.data, general.data) || !bytes.Equal(quick.meta, general.meta) {
			t.Errorf("quick: %+v, general: %+v", quick, general)
		}
	})
}

// raw sends and receives messages as bytes, so that they need not be messages at all.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("want bytes, got %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("want bytes, got %T", v)
	}
	*b = data.Materialize()
	return nil
}

var _ encoding.CodecV2 = raw{}

// methods are those of the protocol that take messages of a client.
var methods = []string{
	"/event_store.client.streams.Streams/Read", "/event_store.client.streams.Streams/Append", "/event_store.client.streams.Streams/BatchAppend",
	"/event_store.client.streams.Streams/Delete", "/event_store.client.streams.Streams/Tombstone",
	"/event_store.client.server_features.ServerFeatures/GetSupportedMethods", "/event_store.client.gossip.Gossip/Read",
	"/event_store.client.persistent_subscriptions.PersistentSubscriptions/Read", "/event_store.client.nobody/Knows",
}

// framed joins messages, each after its length, as the fuzzer changes them.
func framed(messages ...proto.Message) []byte {
	var b []byte
	for _, m := range messages {
		text, err := proto.Marshal(m)
		if err != nil {
			panic(err)
		}
		b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
		b = append(b, text...)
	}
	return b
}

// unframed cuts what framed joined, whatever became of it; at most so many as one call needs.
func unframed(b []byte) (messages [][]byte) {
	for len(b) >= 2 && len(messages) < 20 {
		n := min(int(binary.BigEndian.Uint16(b)), len(b)-2)
		messages, b = append(messages, b[2:2+n]), b[2+n:]
	}
	return messages
}

// FuzzCalls sends any bytes as the messages of any call: it is answered or refused, never with a
// fault of the node's own, and afterwards the node stores and reads as before.
func FuzzCalls(f *testing.F) {
	stream := &shared.StreamIdentifier{StreamName: []byte("fuzzed")}
	read := func(change func(*streams.ReadReq_Options)) []byte {
		o := &streams.ReadReq_Options{
			StreamOption: &streams.ReadReq_Options_All{
				All: &streams.ReadReq_Options_AllOptions{
					AllOption: &streams.ReadReq_Options_AllOptions_Start{Start: &shared.Empty{}},
				},
			},
			CountOption:  &streams.ReadReq_Options_Count{Count: 3},
			FilterOption: &streams.ReadReq_Options_NoFilter{NoFilter: &shared.Empty{}},
			UuidOption: &streams.ReadReq_Options_UUIDOption{
				Content: &streams.ReadReq_Options_UUIDOption_Structured{Structured: &shared.Empty{}},
			},
		}
		change(o)
		return framed(&streams.ReadReq{Options: o})
	}
	f.Add(uint8(0), read(func(*streams.ReadReq_Options) {}))
	f.Add(uint8(0), read(func(o *streams.ReadReq_Options) {
		o.StreamOption = &streams.ReadReq_Options_Stream{Stream: &streams.ReadReq_Options_StreamOptions{
			StreamIdentifier: stream, RevisionOption: &streams.ReadReq_Options_StreamOptions_Revision{Revision: 1},
		}}
		o.ReadDirection = streams.ReadReq_Options_Backwards
	}))
	for _, expression := range []*filterOptions{
		{Filter: &streams.ReadReq_Options_FilterOptions_EventType{EventType: expression("^(a|[^$])+$")}, Window: &streams.ReadReq_Options_FilterOptions_Max{Max: 1}, CheckpointIntervalMultiplier: 1},
		{Filter: &streams.ReadReq_Options_FilterOptions_StreamIdentifier{StreamIdentifier: expression("", "fuz", "$$")}, Window: &streams.ReadReq_Options_FilterOptions_Count{Count: &shared.Empty{}}, CheckpointIntervalMultiplier: 7},
	} {
		f.Add(uint8(0), read(func(o *streams.ReadReq_Options) {
			o.CountOption = &streams.ReadReq_Options_Subscription{Subscription: &streams.ReadReq_Options_SubscriptionOptions{}}
			o.FilterOption = &streams.ReadReq_Options_Filter{Filter: expression}
		}))
	}
	f.Add(uint8(1), framed(appendOptions("fuzzed", anyRevision), newEvent(`{}`).message(), newEvent("x").message()))
	f.Add(uint8(1), framed(appendOptions("$$fuzzed", none),
		event{id: uuid.New(), typ: storage.MetadataType, data: `{"$maxCount":1,"$tb":3,"$maxAge":1e9}`}.message()))
	f.Add(uint8(2), framed(&streams.BatchAppendReq{
		CorrelationId: structuredID(uuid.New()), IsFinal: true,
		Options: &streams.BatchAppendReq_Options{
			StreamIdentifier:       stream,
			ExpectedStreamPosition: &streams.BatchAppendReq_Options_StreamPosition{StreamPosition: 1},
		},
		ProposedMessages: []*streams.BatchAppendReq_ProposedMessage{{
			Id:       structuredID(uuid.New()),
			Metadata: map[string]string{wire.KeyType: "t", wire.KeyContentType: wire.ContentTypeJSON},
			Data:     []byte("{}"),
		}},
	}))
	f.Add(uint8(3), framed(&streams.DeleteReq{Options: &streams.DeleteReq_Options{StreamIdentifier: stream}}))
	f.Add(uint8(4), framed(&streams.TombstoneReq{
		Options: &streams.TombstoneReq_Options{
			StreamIdentifier:       stream,
			ExpectedStreamRevision: &streams.TombstoneReq_Options_Revision{Revision: 1},
		},
	}))
	for n := range methods {
		f.Add(uint8(n), []byte{0, 0})
		f.Add(uint8(n), []byte{0, 3, 0xff, 0xff, 0xff})
	}

	n := startNode(f, Config{})
	c := dial(f, n)
	f.Fuzz(func(t *testing.T, method uint8, frames []byte) {
		name := methods[int(method)%len(methods)]
		err := callRaw(t.Context(), c.conn, name, unframed(frames))
		switch status.Code(err) {
		case codes.Internal, codes.Unknown, codes.DataLoss:
			if !isUndecodable(err) {
				t.Fatalf("%s: %v", name, err)
			}
		case codes.Unavailable:
			t.Fatalf("%s: %v", name, err)
		}
		// The node stores and reads: nothing hangs, nothing is stopped.
		proof := fmt.Sprintf("proof-%s", uuid.NewString())
		ctx, cancel := context.WithTimeout(t.Context(), runtest.Timeout)
		defer cancel()
		if resp, err := c.tryAppend(ctx, proof, none, newEvent("{}")); err != nil || resp.GetSuccess() == nil {
			t.Fatalf("after %s nothing is stored: %v, %v", name, resp, err)
		}
	})
}

// isUndecodable reports whether gRPC itself refused a call, since its bytes are no message, or
// there is none.
func isUndecodable(err error) bool {
	said := status.Convert(err).Message()
	if status.Code(err) == codes.Unknown {
		return said == "EOF"
	}
	return strings.Contains(said, "unmarshal") || strings.Contains(said, "cannot parse") ||
		strings.Contains(said, "cardinality violation")
}

// callRaw makes a call and reads its answers until it ends. A subscription does not end by itself.
func callRaw(ctx context.Context, conn *grpc.ClientConn, method string, messages [][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	call, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method,
		grpc.ForceCodecV2(raw{}))
	if err != nil {
		return err
	}
	for _, m := range messages {
		if err := call.SendMsg(m); err != nil {
			break // the answer carries the reason
		}
	}
	if err := call.CloseSend(); err != nil {
		return err
	}
	for range 50 {
		var answer []byte
		if err := call.RecvMsg(&answer); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
	return nil
}
