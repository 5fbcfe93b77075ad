package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// The parts that a call holds in memory are bounded. An append beyond the bound is refused, and its
// memory is free again for others.
func TestBatchAppend_PartsBounded(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	b := c.batchAppend()
	big := strings.Repeat("x", maxAppend-64)
	var open []*streams.BatchAppendReq
	for i := 0; ; i++ {
		p := unfinished(part(fmt.Sprintf("s%d", i), none, newEvent(big)))
		b.send(p)
		open = append(open, p)
		if (i+1)*len(big) > batchPartBytes {
			break
		}
	}
	code, got := detail(t, b.receive())
	if _, ok := got.(*emptypb.Empty); !ok || code != codes.Unavailable {
		t.Errorf("got %v, %v", code, got)
	}
	for _, p := range open {
		b.send(more(p, true))
	}
	for range len(open) - 1 {
		if got := b.receive(); got.GetSuccess() == nil {
			t.Fatalf("got %v", got)
		}
	}
	for i := range batchParts + 1 {
		b.send(unfinished(part(fmt.Sprintf("t%d", i), none)))
	}
	if code, _ := detail(t, b.receive()); code != codes.Unavailable {
		t.Errorf("got %v", code)
	}
	b.end()
}

// A part that names no append ends the call, after the answers to the earlier parts.
func TestBatchAppend_WithoutID(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	for _, id := range []*shared.UUID{nil, {}, textID("not a uuid")} {
		b := c.batchAppend()
		b.send(part("s", anyRevision, newEvents(1)...))
		lost := part("s", anyRevision, newEvents(1)...)
		lost.CorrelationId = id
		b.send(lost)
		if got := b.receive(); got.GetSuccess() == nil {
			t.Errorf("got %v", got)
		}
		if _, err := b.call.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("id %v: %v", id, err)
		}
	}
}

// A node that closes ends the call. Acknowledged appends are there after the restart.
func TestBatchAppend_NodeCloses(t *testing.T) {
	cfg := memoryConfig()
	n := startNode(t, cfg)
	b := dial(t, n).batchAppend()
	if got := b.one(part("s", none, newEvents(2)...)); got.GetSuccess() == nil {
		t.Fatalf("got %v", got)
	}
	b.send(unfinished(part("t", none, newEvents(1)...)))
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.call.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
	if got := dial(t, startNode(t, cfg)).read(ofAll()); len(got) != 2 {
		t.Errorf("%d events after the restart", len(got))
	}
}

// When a client disconnects, its unfinished appends are dropped and the places of its large appends
// are free again.
func TestBatchAppend_ClientDisconnects(t *testing.T) {
	n := startNode(t, memoryConfig())
	c := dial(t, n)
	big := strings.Repeat("x", smallAppend+1)
	for range 3 {
		b := c.batchAppend()
		for range largeAppends {
			b.send(part("s", anyRevision, newEvent(big)))
		}
		b.receive()
		if err := b.call.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for err := error(nil); err == nil; {
			_, err = b.call.Recv()
		}
	}
	if got := c.read(limited(ofStream("s"), 1000)); len(got) != 3*largeAppends {
		t.Errorf("%d events", len(got))
	}
}
