package esdb_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node/nodetest"
)

// TestOutage_ServerReturns covers what the driver does not survive: a server that is down for
// longer than its search lasts.
func TestOutage_ServerReturns(t *testing.T) {
	sound := func() *fake {
		return &fake{
			onAppend: func(_ []*streams.AppendReq, in streams.Streams_AppendServer) error {
				return in.SendAndClose(appended(0, 7))
			},
			onRead: func(req *streams.ReadReq, out streams.Streams_ReadServer) error {
				if req.GetOptions().GetSubscription() == nil {
					return nil
				}
				if err := out.Send(confirmation()); err != nil {
					return err
				}
				<-out.Context().Done()
				return status.FromContextError(out.Context().Err()).Err()
			},
		}
	}
	addr, stop := sound().serve(t, "127.0.0.1:0")
	store, ctx := insecure(t, addr), within(t, hangLimit)
	for round := range 3 {
		if _, err := store.Append(ctx, "a-1", eventstore.NoStream, oneEvent()); err != nil {
			t.Fatalf("round %d: append: %v", round, err)
		}
		sub, err := store.Subscribe(ctx, 0)
		if err != nil {
			t.Fatalf("round %d: subscribe: %v", round, err)
		}
		stop()
		if r, err := sub.Next(ctx); !errors.Is(err, eventstore.ErrUnavailable) {
			t.Errorf("round %d: the subscription goes on: %v, %v", round, r, err)
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		for range 4 {
			if _, err := store.Append(ctx, "a-1", eventstore.NoStream, oneEvent()); !errors.Is(err, eventstore.ErrUnknown) ||
				!errors.Is(err, eventstore.ErrUnavailable) {
				t.Errorf("round %d: append: %v", round, err)
			}
			if _, err := store.Head(ctx); !errors.Is(err, eventstore.ErrUnavailable) {
				t.Errorf("round %d: head: %v", round, err)
			}
			if _, err := store.Subscribe(ctx, 0); !errors.Is(err, eventstore.ErrUnavailable) {
				t.Errorf("round %d: subscribe: %v", round, err)
			}
		}
		_, stop = sound().serve(t, addr)
	}
}

func TestOutage_ServerStartsLater(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	store, ctx := insecure(t, addr), within(t, hangLimit)
	if _, err := store.Head(ctx); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	f := &fake{onRead: func(*streams.ReadReq, streams.Streams_ReadServer) error { return nil }}
	f.serve(t, addr)
	if _, err := store.Head(ctx); err != nil {
		t.Error(err)
	}
}

// TestOutage_SilentServer has a server that accepts connections and sends
// nothing. The driver then waits for its search to time out and ignores the context of the call.
func TestOutage_SilentServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	})
	store := nodetest.Open(t, esdb.Config{
		ConnectionString: "esdb://" + listener.Addr().String() +
			"?tls=false&maxDiscoverAttempts=1&gossipTimeout=1&discoveryInterval=1", Logger: quiet(),
	})
	for what, call := range map[string]func(context.Context) error{
		"append": func(ctx context.Context) error { _, err := store.Append(ctx, "a-1", 0, oneEvent()); return err },
		"read": func(ctx context.Context) error {
			_, err := store.Read(ctx, "a-1", 0, eventstore.Forwards, 1)
			return err
		},
		"head":      func(ctx context.Context) error { _, err := store.Head(ctx); return err },
		"subscribe": func(ctx context.Context) error { _, err := store.Subscribe(ctx, 0); return err },
	} {
		err := call(within(t, 20*time.Millisecond))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestClose_LaterCalls(t *testing.T) {
	f := &fake{}
	addr, _ := f.serve(t, "127.0.0.1:0")
	store, err := esdb.Open(esdb.Config{ConnectionString: "esdb://" + addr + "?tls=false", Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, hangLimit)
	if _, err := store.Head(ctx); err == nil || errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("head: %v", err)
	}
	if _, err := store.Subscribe(ctx, 0); err == nil || errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("subscribe: %v", err)
	}
	if _, err := store.Append(ctx, "a-1", 0, oneEvent()); err == nil || errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("append: %v", err)
	}
}
