package esdb_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/clustertest"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
)

// The suite runs against a server that answers an append with a timeout while an equal one is being
// committed. In the race of one append, that happens for certain.
func TestCluster_CommitTimeouts(t *testing.T) {
	c := clustertest.Start(t, 1)
	c.Script(0, func(s *clustertest.Script) { s.CommitTimeouts = true })
	conformance(t, func(t *testing.T) eventstore.Store {
		if strings.HasSuffix(t.Name(), "race_of_the_same_append_has_one_outcome") {
			c.AwaitTwins(0, 1)
			before := c.TimedOut(0)
			t.Cleanup(func() {
				if c.TimedOut(0) == before {
					t.Error("no append timed out")
				}
			})
		}
		return openCluster(t, c.ConnectionString(), 2)
	})
}

// An append that timed out on the server is made again, whether it was executed or not, and is
// answered as if it had been made once.
func TestAppend_TimedOut(t *testing.T) {
	c := clustertest.Start(t, 1)
	store, ctx := openCluster(t, c.ConnectionString(), 1), within(t, hangLimit)
	for i, phase := range []string{"Prepare phase timeout.", "Commit phase timeout.", "Forward timeout"} {
		for _, executed := range []bool{false, true} {
			t.Run(fmt.Sprint(phase, executed), func(t *testing.T) {
				before, calls := c.TimedOut(0), c.Calls(0)
				c.TimeOut(0, 2, phase, executed)
				stream := fmt.Sprintf("account-%d-%t", i, executed)
				done, err := store.Append(ctx, stream, eventstore.NoStream, oneEvent())
				runtest.Must(t, err)
				if timedOut, calls := c.TimedOut(0)-before, c.Calls(0)-calls; timedOut != 2 || calls != 3 {
					t.Errorf("%d of %d tries timed out, want 2 of 3", timedOut, calls)
				}
				events, err := store.Read(ctx, stream, 0, eventstore.Forwards, 10)
				if err != nil || len(events) != 1 {
					t.Fatalf("stored %+v, %v", events, err)
				}
				if want := (eventstore.Appended{Position: events[0].Position}); done != want {
					t.Errorf("answered %+v, want %+v", done, want)
				}
			})
		}
	}
}

// A deletion or a tombstone that timed out is not made again: its caller looks whether it happened.
func TestCluster_EndsThatTimeOut(t *testing.T) {
	c, store, _ := lagging(t)
	ctx := within(t, hangLimit)
	for name, end := range map[string]func() error{
		"delete":    func() error { _, err := store.Delete(ctx, "counter-1", 2); return err },
		"tombstone": func() error { _, err := store.Tombstone(ctx, "counter-1", 2); return err },
	} {
		calls := c.Calls(0)
		c.TimeOut(0, 1, "Commit phase timeout.", false)
		if err := end(); !errors.Is(err, eventstore.ErrUnknown) || c.Calls(0) != calls+1 {
			t.Errorf("%s: %v after %d tries", name, err, c.Calls(0)-calls)
		}
	}
	c.TimeOut(0, 1, "Commit phase timeout.", true)
	if _, err := store.Tombstone(ctx, "counter-1", 2); !errors.Is(err, eventstore.ErrUnknown) ||
		errors.Is(err, eventstore.ErrDeleted) {
		t.Errorf("a tombstone that was written: %v", err)
	}
	wantError(t, "after it", errorOf(store.Tombstone(ctx, "counter-1", 2)), eventstore.ErrDeleted)
}

// together answers an append over the shared call with an error.
func together(code codes.Code, message string) *streams.BatchAppendResp {
	return &streams.BatchAppendResp{
		Result: &streams.BatchAppendResp_Error{Error: status.New(code, message).Proto()},
	}
}

// An append that times out over the shared call is made again there.
func TestBatchAppender_TimedOut(t *testing.T) {
	for name, timeout := range map[string]*streams.BatchAppendResp{
		"as an EventStoreDB": together(codes.DeadlineExceeded, "Timeout"),
		"as a separate call": together(codes.Aborted, "Operation timed out: Commit phase timeout."),
	} {
		t.Run(name, func(t *testing.T) {
			var tries atomic.Int64
			b := &batching{answer: func(r *streams.BatchAppendReq) *streams.BatchAppendResp {
				if streamOf(r) == "twin-1" && tries.Add(1) < 3 {
					return timeout
				}
				return stored(1, 2)(r)
			}}
			store := b.openShared(t)
			alone := b.single.Load()
			done, err := store.Append(within(t, hangLimit), "twin-1", eventstore.NoStream, oneEvent())
			if want := (eventstore.Appended{Revision: 1, Position: 2}); err != nil || done != want {
				t.Errorf("%+v, %v, want %+v", done, err, want)
			}
			if tries.Load() != 3 || b.single.Load() != alone {
				t.Errorf("%d tries together and %d alone, want 3 and none", tries.Load(), b.single.Load()-alone)
			}
		})
	}
}

func streamOf(r *streams.BatchAppendReq) string {
	return string(r.GetOptions().GetStreamIdentifier().GetStreamName())
}

// An append that is repeated when the store is closed has an unknown outcome.
func TestAppend_CloseWhileRepeated(t *testing.T) {
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprint("together=", batch), func(t *testing.T) {
			var tries atomic.Int64
			b := &batching{answer: func(r *streams.BatchAppendReq) *streams.BatchAppendResp {
				if streamOf(r) != "twin-1" {
					return stored(1, 2)(r)
				}
				tries.Add(1)
				return together(codes.DeadlineExceeded, "Timeout")
			}}
			b.lacking = !batch
			store := b.open(t)
			if batch {
				b.until(t, store, func() bool { return b.together.Load() > 0 })
			}
			b.onAppend = func(_ []*streams.AppendReq, in streams.Streams_AppendServer) error {
				tries.Add(1)
				return failing{codes.Aborted, "Operation timed out: Commit phase timeout.", nil}.on(in.Context())
			}
			ctx := within(t, hangLimit)
			failed := begin(ctx, store, "twin-1", oneEvent())
			until(ctx, t, "it is repeated", func() bool { return tries.Load() > 1 })
			runtest.Must(t, store.Close())
			if err := <-failed; !errors.Is(err, eventstore.ErrUnknown) || ctx.Err() != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

// stallingDisk is a disk whose logs cannot be written while it is full. It does not report that it is.
type stallingDisk struct {
	smallDisk
	full atomic.Bool
}

func (d *stallingDisk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.smallDisk.Create(name, category)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return stallingFile{f, d}, nil
}

type stallingFile struct {
	vfs.File
	disk *stallingDisk
}

func (f stallingFile) Write(p []byte) (int, error) {
	if f.disk.full.Load() {
		return 0, &os.PathError{Op: "write", Path: "log", Err: syscall.ENOSPC}
	}
	return f.File.Write(p)
}

// A node whose disk is full in the middle of a write reports a timeout too. Its callers get that at
// once: a repeat would wait for an operator.
func TestAppend_StalledDisk(t *testing.T) {
	disk := &stallingDisk{smallDisk: smallDisk{FS: vfs.NewMem()}}
	n := startInsecure(t, disk)
	store := nodetest.Open(t, esdb.Config{
		ConnectionString: "esdb://" + n.Connection().Addr + "?tls=false", Logger: quiet(), BatchAppends: true,
	})
	ctx := within(t, hangLimit)
	for range 20 { // the first append opens the common call
		runtest.Must(t, errorOf(store.Append(ctx, "warm-"+uuid.NewString(), eventstore.NoStream, oneEvent())))
	}
	disk.full.Store(true)
	_, err := store.Append(ctx, "account-2", eventstore.NoStream, oneEvent())
	if !errors.Is(err, eventstore.ErrUnknown) || !strings.Contains(err.Error(), stalledDisk) {
		t.Errorf("got %v", err)
	}
	disk.full.Store(false)
	for range 2 {
		done, err := eventstore.AppendUntilKnown(ctx, store, "account-2", eventstore.NoStream, oneEvent())
		if err != nil || done.Revision != 0 {
			t.Errorf("once there is space: %+v, %v", done, err)
		}
	}
}

// stalledDisk begins the answer of such a node. TestAppend_Failures shows that it is not
// repeated.
const stalledDisk = "Operation timed out: the disk of the event store is full"

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
	failed := begin(ctx, store, "account-1", events)
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
	runtest.Must(t, errorOf(store.Head(ctx)))
	w.Mute(true)
	impatient, cancel := context.WithCancel(ctx)
	failed := begin(impatient, store, "account-1", oneEvent())
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
		runtest.Must(t, n.Close())
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
	addr, stop = f.serve(t, "127.0.0.1:0", garbled)
	fails(t, insecure(t, addr), "no message behind a sound start")
	stop()

	babbling, err := net.Listen("tcp", "127.0.0.1:0")
	runtest.Must(t, err)
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
	wantError(t, what+": head", errorOf(store.Head(ctx)), eventstore.ErrUnavailable)
	if _, _, err := store.ReadLast(ctx, "account-1"); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("%s: last: %v", what, err)
	}
	if _, err := store.Append(ctx, "account-1", eventstore.NoStream, oneEvent()); !errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("%s: append: %v", what, err)
	}
	if sub, err := store.Subscribe(ctx, 0); err == nil {
		_, err = sub.Next(ctx)
		wantError(t, what+": follow", err, eventstore.ErrUnavailable)
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
