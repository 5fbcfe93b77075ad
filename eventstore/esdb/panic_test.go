package esdb_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node/nodetest"
)

// panickingLog panics at each message about a lost connection while it is armed, and counts that.
type panickingLog struct {
	slog.Handler
	armed  atomic.Bool
	panics atomic.Int64
}

func (h *panickingLog) Enabled(context.Context, slog.Level) bool { return true }

func (h *panickingLog) Handle(_ context.Context, r slog.Record) error {
	if h.armed.Load() && r.Message == "event store connection given up" {
		h.panics.Add(1)
		panic("log handler")
	}
	return nil
}

func (h *panickingLog) store(t *testing.T, addr string) *esdb.Store {
	t.Helper()
	h.Handler = slog.DiscardHandler
	h.armed.Store(true)
	return nodetest.Open(t, esdb.Config{
		ConnectionString: "esdb://" + addr + "?tls=false&maxDiscoverAttempts=2&discoveryInterval=5", Logger: slog.New(h),
	})
}

// wantPanic disarms the log.
func (h *panickingLog) wantPanic(t *testing.T, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "panicked: log handler") || h.panics.Load() == 0 {
		t.Fatalf("error %v after %d panics, want a panic", err, h.panics.Load())
	}
	h.armed.Store(false)
}

func soundAppend(_ []*streams.AppendReq, in streams.Streams_AppendServer) error {
	return in.SendAndClose(appended(0, 7))
}

func TestConnect_Panics(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	var log panickingLog
	store, ctx := log.store(t, addr), within(t, hangLimit)
	_, err = store.Append(ctx, "a-1", eventstore.NoStream, oneEvent())
	log.wantPanic(t, err)
	(&fake{onAppend: soundAppend}).serve(t, addr)
	if _, err := store.Append(ctx, "a-1", eventstore.NoStream, oneEvent()); err != nil {
		t.Errorf("after the panic: %v", err)
	}
}

// After a server named another leader, calls run on goroutines of the pool.
func TestCallOnPooledConnection_Panics(t *testing.T) {
	f := &fake{onAppend: soundAppend}
	host, port := "", ""
	f.onDelete = func(ctx context.Context) (*streams.DeleteResp, error) {
		trailers := []string{"exception", "not-leader", "leader-endpoint-host", host, "leader-endpoint-port", port}
		return nil, failing{codes.NotFound, "Leader info available", trailers}.on(ctx)
	}
	var appends atomic.Int64
	addr, _ := f.serveWith(t, "127.0.0.1:0", grpc.StreamInterceptor(
		func(server any, call grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if strings.HasSuffix(info.FullMethod, "/Append") && appends.Add(1) == 1 {
				return status.Error(codes.Aborted, "cut off before it was read")
			}
			return handle(server, call)
		}))
	var err error
	if host, port, err = net.SplitHostPort(addr); err != nil {
		t.Fatal(err)
	}
	var log panickingLog
	store, ctx := log.store(t, addr), within(t, hangLimit)
	if _, err := store.Tombstone(ctx, "a-1", 0); err == nil {
		t.Fatal("a follower tombstones")
	}
	// More than the server takes unread, so the client notices while it sends.
	large := oneEvent()
	large[0].Data = []byte(`"` + strings.Repeat("x", 150<<10) + `"`)
	_, err = store.Append(ctx, "a-1", eventstore.NoStream, slices.Repeat(large, 4))
	log.wantPanic(t, err)
	if _, err := store.Append(ctx, "a-1", eventstore.NoStream, oneEvent()); err != nil {
		t.Errorf("after the panic: %v", err)
	}
}

func TestSubscription_Panics(t *testing.T) {
	follow := make(chan struct{})
	f := &fake{onRead: func(_ *streams.ReadReq, out streams.Streams_ReadServer) error {
		if err := out.Send(confirmation()); err != nil {
			return err
		}
		<-follow
		return nil
	}}
	addr, _ := f.serve(t, "127.0.0.1:0")
	var log panickingLog
	store, ctx := log.store(t, addr), within(t, hangLimit)
	sub, err := store.Subscribe(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	close(follow)
	_, err = sub.Next(ctx)
	log.wantPanic(t, err)
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
}

// callerContext panics where the metadata of a call is read from it.
type callerContext struct{ context.Context }

func (c callerContext) Value(key any) any {
	if strings.HasPrefix(fmt.Sprintf("%T", key), "metadata.") {
		panic(errors.New("value"))
	}
	return c.Context.Value(key)
}

func TestCall_ContextPanics(t *testing.T) {
	f := &fake{onAppend: soundAppend}
	addr, _ := f.serve(t, "127.0.0.1:0")
	store, ctx := insecure(t, addr), within(t, hangLimit)
	if _, err := store.Append(callerContext{ctx}, "a-1", eventstore.NoStream, oneEvent()); err == nil ||
		!strings.Contains(err.Error(), "panicked: value") {
		t.Errorf("append: %v", err)
	}
	if _, err := store.Subscribe(callerContext{ctx}, 0); err == nil || !strings.Contains(err.Error(), "panicked: value") {
		t.Errorf("subscribe: %v", err)
	}
	if _, err := store.Append(ctx, "a-1", eventstore.NoStream, oneEvent()); err != nil {
		t.Errorf("after the panics: %v", err)
	}
}
