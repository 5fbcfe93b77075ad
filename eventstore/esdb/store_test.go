package esdb_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
)

func TestMemory(t *testing.T) {
	conformance(t, func(*testing.T) eventstore.Store { return eventstoretest.NewMemory() })
}

func TestMemory_Scavenge(t *testing.T) {
	store := eventstoretest.NewMemory()
	conformsInScavenge(t, store, store.Scavenge)
}

func TestNode(t *testing.T) {
	conn := startNode(t)
	conformance(t, func(t *testing.T) eventstore.Store { return open(t, conn, 1) })
}

func TestNode_SeveralConnections(t *testing.T) {
	conn := startNode(t)
	conformance(t, func(t *testing.T) eventstore.Store { return open(t, conn, 3) })
}

func TestNode_Scavenge(t *testing.T) {
	n := nodetest.Start(t, node.Config{})
	conformsInScavenge(t, open(t, n.Connection(), 1), n.Scavenge)
}

// TestServer runs the same suite against a server or a cluster that is there already.
func TestServer(t *testing.T) {
	server := os.Getenv("ANNALS_TEST_ESDB")
	if server == "" {
		t.Skip("ANNALS_TEST_ESDB names no server")
	}
	conformance(t, func(t *testing.T) eventstore.Store {
		return nodetest.Open(t, esdb.Config{ConnectionString: server, Logger: quiet(), Connections: 2})
	})
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func startNode(t testing.TB) node.Connection {
	t.Helper()
	return nodetest.Start(t, node.Config{}).Connection()
}

func config(conn node.Connection, connections int) esdb.Config {
	cfg := nodetest.ConfigOf(conn)
	cfg.Logger, cfg.Connections = quiet(), connections
	return cfg
}

func open(t *testing.T, conn node.Connection, connections int) *esdb.Store {
	t.Helper()
	return nodetest.Open(t, config(conn, connections))
}

// A call that an EventStoreDB denies names the right that is missing, and may be repeated.
func TestCalls_Denied(t *testing.T) {
	denied := failing{codes.PermissionDenied, "Access Denied", []string{"exception", "access-denied"}}
	readable := func(name string) bool { return name == "identity-1" }
	f := &fake{
		onRead: func(req *streams.ReadReq, out streams.Streams_ReadServer) error {
			if name := string(req.GetOptions().GetStream().GetStreamIdentifier().GetStreamName()); readable(name) {
				return out.Send(event(name, "thing.done.v1", 5, 7))
			}
			return denied.on(out.Context())
		},
		onAppend: func(_ []*streams.AppendReq, in streams.Streams_AppendServer) error { return denied.on(in.Context()) },
		onDelete: func(ctx context.Context) (*streams.DeleteResp, error) { return nil, denied.on(ctx) },
	}
	addr, _ := f.serve(t, "127.0.0.1:0")
	store, ctx := insecure(t, addr), within(t, hangLimit)
	for _, c := range []struct {
		name   string
		right  eventstore.Right
		stream string
		call   func() error
	}{
		{"read", eventstore.MayRead, "a-1", func() error { _, _, err := store.ReadLast(ctx, "a-1"); return err }},
		{"head", eventstore.MayRead, "$all", func() error { _, err := store.Head(ctx); return err }},
		{"subscribe", eventstore.MayRead, "$all", func() error { _, err := store.Subscribe(ctx, 0); return err }},
		{"append", eventstore.MayWrite, "a-1", func() error {
			_, err := store.Append(ctx, "a-1", eventstore.NoStream, oneEvent())
			return err
		}},
		{"delete", eventstore.MayDelete, "a-1", func() error { _, err := store.Delete(ctx, "a-1", 3); return err }},
		{"tombstone", eventstore.MayDelete, "a-1", func() error { _, err := store.Tombstone(ctx, "a-1", 3); return err }},
		{
			"truncate, metadata not to be read", eventstore.MayReadMetadata, "identity-1",
			func() error { return store.Truncate(ctx, "identity-1", 3) },
		},
		{
			"append to metadata", eventstore.MayWriteMetadata, "identity-1",
			func() error {
				_, err := store.Append(ctx, "$$identity-1", eventstore.NoStream, oneEvent())
				return err
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.call()
			named, is := errors.AsType[*eventstore.DeniedError](err)
			if !is || named.Right != c.right || named.Stream != c.stream {
				t.Fatalf("got %v, want the right %s of %s", err, c.right, c.stream)
			}
			if !errors.Is(err, eventstore.ErrDenied) || !errors.Is(err, eventstore.ErrUnavailable) ||
				errors.Is(err, eventstore.ErrUnknown) {
				t.Errorf("it is %v", err)
			}
			if !strings.Contains(err.Error(), `the right "`+string(c.right)+`" in the $acl of `+c.stream) {
				t.Errorf("it reads %v", err)
			}
		})
	}
}

// TestRead_AfterErasedEvents has the node remove the events of a tombstoned stream from the log,
// and with them positions that readers have reached.
func TestRead_AfterErasedEvents(t *testing.T) {
	store, ctx := open(t, startNode(t), 1), within(t, hangLimit)
	append := func(stream string, expected eventstore.Revision) eventstore.Appended {
		t.Helper()
		events := oneEvent()
		events[0].ID = uuid.New()
		done, err := store.Append(ctx, stream, expected, events)
		runtest.Must(t, err)
		return done
	}
	append("before-1", eventstore.NoStream)
	gone := append("gone-1", eventstore.NoStream)
	end, err := store.Tombstone(ctx, "gone-1", 0)
	runtest.Must(t, err)
	for {
		if _, there, err := store.ReadAt(ctx, gone.Position); err != nil {
			t.Fatal(err)
		} else if !there {
			break
		}
	}
	if head, err := store.Head(ctx); err != nil || head < end {
		t.Errorf("head is %d, %v; the tombstone is at %d", head, err, end)
	}
	after := append("after-1", eventstore.NoStream)
	want := []eventstore.Position{end, after.Position}
	events, err := store.ReadAll(ctx, gone.Position, 10)
	runtest.Must(t, err)
	if len(events) != 2 || events[0].Position != want[0] || events[1].Position != want[1] {
		t.Errorf("after %d: %+v, want what is at %v", gone.Position, events, want)
	}
	sub, err := store.Subscribe(ctx, gone.Position)
	runtest.Must(t, err)
	defer func() {
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, at := range want {
		r, err := sub.Next(ctx)
		if err != nil || r.Position != at {
			t.Errorf("got %+v, %v; want what is at %d", r, err, at)
		}
	}
}

// smallDisk is a disk that can be full.
type smallDisk struct {
	vfs.FS
	full atomic.Bool
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	if d.full.Load() {
		return vfs.DiskUsage{}, nil
	}
	return vfs.DiskUsage{AvailBytes: 1 << 40}, nil
}

// An append that a full node refused was not done, and its error is not an unknown outcome: a
// caller that repeats unknown writes does not repeat it.
func TestAppend_FullDisk(t *testing.T) {
	for _, together := range []bool{false, true} {
		t.Run(fmt.Sprint("together=", together), func(t *testing.T) {
			disk := &smallDisk{FS: vfs.NewMem()}
			n := startInsecure(t, disk)
			store := nodetest.Open(t, esdb.Config{
				ConnectionString: "esdb://" + n.Connection().Addr + "?tls=false",
				Logger:           quiet(),
				BatchAppends:     together,
			})
			ctx := within(t, hangLimit)
			for range 20 { // the first append opens the common call
				runtest.Must(t, errorOf(store.Append(ctx, "warm-"+uuid.NewString(), eventstore.NoStream, oneEvent())))
			}
			disk.full.Store(true)
			_, err := eventstore.AppendUntilKnown(ctx, store, "account-1", eventstore.NoStream, oneEvent())
			if !errors.Is(err, eventstore.ErrUnavailable) || !errors.Is(err, eventstore.ErrFull) ||
				errors.Is(err, eventstore.ErrUnknown) || ctx.Err() != nil {
				t.Fatalf("got %v", err)
			}
			disk.full.Store(false)
			if done, err := store.Append(ctx, "account-1", eventstore.NoStream, oneEvent()); err != nil || done.Revision != 0 {
				t.Errorf("once there is space: %+v, %v", done, err)
			}
		})
	}
}

// Another writer always changes the metadata first: the truncation pauses between its tries and
// ends with its context.
func TestTruncate_AlwaysConflicts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var tries atomic.Int64
	f := &fake{
		onRead: func(req *streams.ReadReq, out streams.Streams_ReadServer) error {
			name := string(req.GetOptions().GetStream().GetStreamIdentifier().GetStreamName())
			if strings.HasPrefix(name, "$$") {
				return out.Send(&streams.ReadResp{Content: &streams.ReadResp_StreamNotFound_{
					StreamNotFound: &streams.ReadResp_StreamNotFound{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(name)}},
				}})
			}
			return out.Send(event(name, "thing.done.v1", 5, 7))
		},
		onAppend: func(_ []*streams.AppendReq, in streams.Streams_AppendServer) error {
			if tries.Add(1) == 4 {
				cancel()
			}
			return in.SendAndClose(&streams.AppendResp{Result: &streams.AppendResp_WrongExpectedVersion_{
				WrongExpectedVersion: &streams.AppendResp_WrongExpectedVersion{
					CurrentRevisionOption:  &streams.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: 3},
					ExpectedRevisionOption: &streams.AppendResp_WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: &shared.Empty{}},
				},
			}})
		},
	}
	addr, _ := f.serve(t, "127.0.0.1:0")
	store := insecure(t, addr)
	began := time.Now()
	err := store.Truncate(ctx, "identity-1", 3)
	if errors.Is(err, eventstore.ErrConflict) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
	// Three pauses lie between four tries: of at least 5, 10 and 20 ms.
	if took := time.Since(began); took < 35*time.Millisecond || tries.Load() != 4 {
		t.Errorf("%d tries in %s", tries.Load(), took)
	}
}

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
	addr := runtest.FreeAddress(t)
	var log panickingLog
	store, ctx := log.store(t, addr), within(t, hangLimit)
	_, err := store.Append(ctx, "a-1", eventstore.NoStream, oneEvent())
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
	addr, _ := f.serve(t, "127.0.0.1:0", grpc.StreamInterceptor(
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
	runtest.Must(t, err)
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
