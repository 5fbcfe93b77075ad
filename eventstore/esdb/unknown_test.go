package esdb_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
)

// TestAppend_LostAnswer loses the answer to an append that was written, and
// makes the append again.
func TestAppend_LostAnswer(t *testing.T) {
	n := startInsecure(t, vfs.NewMem())
	w := nodetest.NewWire(t, n.Connection().Addr)
	store, ctx := insecure(t, w.Addr()), within(t, hangLimit)
	if _, err := store.Head(ctx); err != nil { // connects
		t.Fatal(err)
	}
	events := oneEvent()
	w.Mute(true)
	failed := make(chan error, 1)
	go func() {
		_, err := store.Append(ctx, "account-1", eventstore.NoStream, events)
		failed <- err
	}()
	until(ctx, t, "the append is written", func() bool { return n.Stats().Appends == 1 })
	w.Cut()
	if err := <-failed; !errors.Is(err, eventstore.ErrUnknown) || errors.Is(err, eventstore.ErrConflict) {
		t.Errorf("an append without an answer: %v", err)
	}
	w.Mute(false)
	for range 2 {
		done, err := eventstore.AppendUntilKnown(ctx, store, "account-1", eventstore.NoStream, events)
		if err != nil || done.Revision != 0 || done.Position == 0 {
			t.Errorf("the same append again: %+v, %v", done, err)
		}
	}
	if got := n.Stats().Events; got != 1 {
		t.Errorf("%d events are stored, want 1", got)
	}
	// Another append at that revision is a lost race.
	other := oneEvent()
	other[0].ID = uuid.New()
	if _, err := store.Append(ctx, "account-1", eventstore.NoStream, other); !errors.Is(err, eventstore.ErrConflict) {
		t.Errorf("another append: %v", err)
	}
}

// TestAppend_CallerCancels ends the context of the caller before the answer arrives.
func TestAppend_CallerCancels(t *testing.T) {
	n := startInsecure(t, vfs.NewMem())
	w := nodetest.NewWire(t, n.Connection().Addr)
	store, ctx := insecure(t, w.Addr()), within(t, hangLimit)
	if _, err := store.Head(ctx); err != nil {
		t.Fatal(err)
	}
	w.Mute(true)
	impatient, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		_, err := store.Append(impatient, "account-1", eventstore.NoStream, oneEvent())
		failed <- err
	}()
	until(ctx, t, "the append is written", func() bool { return n.Stats().Appends == 1 })
	cancel()
	if err := <-failed; !errors.Is(err, eventstore.ErrUnknown) || !errors.Is(err, context.Canceled) ||
		errors.Is(err, eventstore.ErrConflict) {
		t.Errorf("got %v", err)
	}
	w.Mute(false)
	w.Cut()
	if done, err := eventstore.AppendUntilKnown(ctx, store, "account-1", eventstore.NoStream, oneEvent()); err != nil ||
		done.Revision != 0 {
		t.Errorf("the same append again: %+v, %v", done, err)
	}
}

// TestSubscription_ServerRestarted has a follower of a server that is closed and started again at
// another address.
func TestSubscription_ServerRestarted(t *testing.T) {
	const restarts, each = 4, 30
	disk := vfs.NewMem()
	n := startInsecure(t, disk)
	w := nodetest.NewWire(t, n.Connection().Addr)
	store, ctx := insecure(t, w.Addr()), within(t, hangLimit)

	following, stop := context.WithCancel(ctx)
	defer stop()
	got := make(chan eventstore.Recorded, restarts*each)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		after := eventstore.Position(0)
		for following.Err() == nil {
			sub, err := store.Subscribe(following, after)
			for err == nil {
				var r eventstore.Recorded
				if r, err = sub.Next(following); err == nil {
					after = r.Position
					got <- r
				}
			}
			if following.Err() == nil && !errors.Is(err, eventstore.ErrUnavailable) {
				t.Errorf("follow: %v", err)
			}
		}
	}()
	at := eventstore.NoStream
	for round := range restarts {
		for range each {
			events := []eventstore.Proposed{{ID: uuid.New(), Type: "thing.done.v1", Data: []byte(`{}`), Meta: []byte(`{}`)}}
			done, err := eventstore.AppendUntilKnown(ctx, store, "account-1", at, events)
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			at = done.Revision
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		n = startInsecure(t, disk)
		w.Lead(n.Connection().Addr)
	}
	for want := range eventstore.Revision(restarts * each) {
		select {
		case r := <-got:
			if r.Revision != want {
				t.Fatalf("event %d came in place of %d", r.Revision, want)
			}
		case <-ctx.Done():
			t.Fatalf("event %d never came", want)
		}
	}
	stop()
	<-ended
	if len(got) != 0 {
		t.Errorf("%d events came twice", len(got))
	}
}

// TestCalls_InvalidBytes answers with bytes that are not a message, and then with bytes that do not
// follow the protocol.
func TestCalls_InvalidBytes(t *testing.T) {
	garbled := grpc.ForceServerCodecV2(nonsense{encoding.GetCodecV2(proto.Name)})
	// The first question of a client, for the features of the server, has no readable answer.
	addr, stop := serving(t, "127.0.0.1:0", grpc.NewServer(garbled,
		grpc.UnknownServiceHandler(func(_ any, call grpc.ServerStream) error { return call.SendMsg(nil) })))
	fails(t, insecure(t, addr), "no message")
	stop()

	f := &fake{onAppend: func(_ []*streams.AppendReq, in streams.Streams_AppendServer) error {
		return in.SendAndClose(appended(0, 7))
	}, onRead: func(_ *streams.ReadReq, out streams.Streams_ReadServer) error {
		return out.Send(event("account-1", "thing.done.v1", 0, 7))
	}}
	addr, stop = f.serveWith(t, "127.0.0.1:0", garbled)
	fails(t, insecure(t, addr), "no message behind a sound start")
	stop()

	babbling, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := babbling.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\n\r\nnothing to see here")) // the client may be gone already
			_ = conn.Close()
		}
	}()
	fails(t, insecure(t, babbling.Addr().String()), "another protocol")
	if err := babbling.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}

// fails proves that every call fails in a way that callers repeat.
func fails(t *testing.T, store *esdb.Store, what string) {
	t.Helper()
	ctx := within(t, hangLimit)
	if _, err := store.Head(ctx); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("%s: head: %v", what, err)
	}
	if _, _, err := store.ReadLast(ctx, "account-1"); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("%s: last: %v", what, err)
	}
	if _, err := store.Append(ctx, "account-1", eventstore.NoStream, oneEvent()); !errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("%s: append: %v", what, err)
	}
	if sub, err := store.Subscribe(ctx, 0); err == nil {
		_, err = sub.Next(ctx)
		if !errors.Is(err, eventstore.ErrUnavailable) {
			t.Errorf("%s: follow: %v", what, err)
		}
	} else if !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("%s: subscribe: %v", what, err)
	}
}

// nonsense sends bytes that are no message of the protocol, in place of every answer.
type nonsense struct{ encoding.CodecV2 }

func (nonsense) Marshal(any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer("\xff\xff\xff nonsense")}, nil
}

// startInsecure starts a node that every client may call, over a disk that outlives it.
func startInsecure(t *testing.T, disk vfs.FS) *node.Node {
	t.Helper()
	return nodetest.Start(t, node.Config{Dir: "log", FS: disk, Insecure: true})
}
