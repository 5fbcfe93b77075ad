package esdb_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
)

func TestNode_BatchAppends(t *testing.T) {
	conn := startNode(t)
	conformance(t, func(t *testing.T) eventstore.Store {
		cfg := config(conn, 2)
		cfg.BatchAppends = true
		store := nodetest.Open(t, cfg)
		// The first append opens the common call. The appends of the test then use it.
		for range 20 {
			if _, err := store.Append(t.Context(), "warm-"+uuid.NewString(), eventstore.NoStream, []eventstore.Proposed{{ID: uuid.New(), Type: "a.b.v1", Data: []byte(`{}`)}}); err != nil {
				t.Fatal(err)
			}
		}
		return store
	})
}

// batching is a server that counts how appends come to it.
type batching struct {
	*fake
	single, together atomic.Int64
	// answer is what becomes of an append that came with others: nil sends none.
	answer func(*streams.BatchAppendReq) *streams.BatchAppendResp
	// lost ends the common call after each of its appends.
	lost bool
	// lacking has no such call.
	lacking bool
}

func (b *batching) BatchAppend(call streams.Streams_BatchAppendServer) error {
	if b.lacking {
		return status.Error(codes.Unimplemented, "no such method")
	}
	for {
		request, err := call.Recv()
		if err != nil {
			return err
		}
		b.together.Add(1)
		if response := b.answer(request); response != nil {
			response.CorrelationId = request.GetCorrelationId()
			if err := call.Send(response); err != nil {
				return err
			}
		}
		if b.lost {
			return status.Error(codes.Unavailable, "going down")
		}
	}
}

func (b *batching) open(t *testing.T) *esdb.Store {
	t.Helper()
	b.fake = &fake{onAppend: func(_ []*streams.AppendReq, in streams.Streams_AppendServer) error {
		b.single.Add(1)
		return in.SendAndClose(appended(5, 50))
	}}
	server := grpc.NewServer()
	streams.RegisterStreamsServer(server, b)
	serverfeatures.RegisterServerFeaturesServer(server, b.fake)
	addr, _ := serving(t, "127.0.0.1:0", server)
	return nodetest.Open(t, esdb.Config{
		ConnectionString: "esdb://" + addr + "?tls=false",
		Logger:           quiet(),
		BatchAppends:     true,
	})
}

func stored(revision, position uint64) func(*streams.BatchAppendReq) *streams.BatchAppendResp {
	return func(*streams.BatchAppendReq) *streams.BatchAppendResp {
		return &streams.BatchAppendResp{Result: &streams.BatchAppendResp_Success_{Success: &streams.BatchAppendResp_Success{
			CurrentRevisionOption: &streams.BatchAppendResp_Success_CurrentRevision{CurrentRevision: revision},
			PositionOption: &streams.BatchAppendResp_Success_Position{
				Position: &shared.AllStreamPosition{CommitPosition: position},
			},
		}}}
	}
}

// openShared is open, and has the common call.
func (b *batching) openShared(t *testing.T) *esdb.Store {
	t.Helper()
	store := b.open(t)
	b.until(t, store, func() bool { return b.together.Load() > 0 })
	return store
}

// silent answers all appends but those to one stream.
func silent(r *streams.BatchAppendReq) *streams.BatchAppendResp {
	if streamOf(r) == "silent-1" {
		return nil
	}
	return stored(1, 2)(r)
}

// until appends until it is so. What comes before the common call stands, goes by calls of its own.
func (b *batching) until(t *testing.T, store *esdb.Store, so func() bool) {
	t.Helper()
	ctx := within(t, hangLimit)
	for !so() {
		runtest.Must(t, errorOf(store.Append(ctx, "a-1", eventstore.NoStream, oneEvent())))
	}
}

func TestBatchAppender_ManyCallers(t *testing.T) {
	b := &batching{answer: func(r *streams.BatchAppendReq) *streams.BatchAppendResp {
		number, err := uuid.Parse(streamOf(r)[2:])
		if err != nil || len(r.GetProposedMessages()) != 2 {
			return stored(0, 1)(r)
		}
		return stored(uint64(number[15]), 100+uint64(number[15]))(r)
	}}
	store := b.openShared(t)
	alone := b.single.Load()
	var group sync.WaitGroup
	for i := range 200 {
		group.Go(func() {
			id := uuid.UUID{15: byte(i)}
			events := []eventstore.Proposed{{ID: uuid.New(), Type: "a.b.v1"}, {ID: uuid.New(), Type: "a.b.v1"}}
			done, err := store.Append(t.Context(), "a-"+id.String(), 7, events)
			want := eventstore.Appended{Revision: eventstore.Revision(i), Position: eventstore.Position(100 + i)}
			if err != nil || done != want {
				t.Errorf("append %d: %+v, %v", i, done, err)
			}
		})
	}
	group.Wait()
	if b.single.Load() != alone {
		t.Errorf("%d appends went alone", b.single.Load()-alone)
	}
	// A big one would hold the others up.
	big := []eventstore.Proposed{{ID: uuid.New(), Type: "a.b.v1", Data: make([]byte, 100<<10)}}
	if _, err := store.Append(t.Context(), "a-1", eventstore.NoStream, big); err != nil || b.single.Load() != alone+1 {
		t.Errorf("%d appends went alone, %v", b.single.Load()-alone, err)
	}
}

// The driver repeats an append that fails over the common call, since only it knows every error.
func TestBatchAppender_FailedAppendIsRepeatedAlone(t *testing.T) {
	for name, answer := range map[string]func(*streams.BatchAppendReq) *streams.BatchAppendResp{
		"refused":     func(*streams.BatchAppendReq) *streams.BatchAppendResp { return &streams.BatchAppendResp{} },
		"no position": stored(5, 0),
		"no stream": func(r *streams.BatchAppendReq) *streams.BatchAppendResp {
			response := stored(0, 9)(r)
			response.GetSuccess().CurrentRevisionOption = nil
			return response
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &batching{answer: answer}
			store := b.openShared(t)
			done, err := store.Append(t.Context(), "a-1", eventstore.NoStream, oneEvent())
			if want := (eventstore.Appended{Revision: 5, Position: 50}); err != nil || done != want {
				t.Errorf("%+v, %v, want what the driver was answered: %+v", done, err, want)
			}
		})
	}
}

func TestBatchAppender_LostCall(t *testing.T) {
	b := &batching{lost: true, answer: func(*streams.BatchAppendReq) *streams.BatchAppendResp { return nil }}
	store := b.open(t)
	b.until(t, store, func() bool { return b.together.Load() > 1 })
}

func TestBatchAppender_UnsupportedByServer(t *testing.T) {
	b := &batching{lacking: true}
	store := b.open(t)
	b.until(t, store, func() bool { return b.single.Load() == 50 })
}

func TestBatchAppender_ContextEnds(t *testing.T) {
	b := &batching{answer: silent}
	store := b.openShared(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := store.Append(ctx, "silent-1", eventstore.NoStream, oneEvent())
	wantError(t, "the error", err, eventstore.ErrUnknown, context.DeadlineExceeded)
	// It goes on for the others.
	if done, err := store.Append(t.Context(), "a-1", eventstore.NoStream, oneEvent()); err != nil || done.Position != 2 {
		t.Errorf("%+v, %v", done, err)
	}
}

// The server receives the deadline of the caller: no caller would learn of a later write.
func TestBatchAppender_SendsDeadline(t *testing.T) {
	var hangLimit atomic.Int64
	b := &batching{answer: func(r *streams.BatchAppendReq) *streams.BatchAppendResp {
		hangLimit.Store(int64(r.GetOptions().GetDeadline().AsDuration()))
		return stored(1, 2)(r)
	}}
	store := b.openShared(t)
	runtest.Must(t, errorOf(store.Append(t.Context(), "a-1", eventstore.NoStream, oneEvent())))
	if got := time.Duration(hangLimit.Load()); got != 20*time.Second {
		t.Errorf("without a deadline the server has %s", got)
	}
	runtest.Must(t, errorOf(store.Append(within(t, 10*time.Second), "a-1", eventstore.NoStream, oneEvent())))
	if got := time.Duration(hangLimit.Load()); got > 10*time.Second || got <= 0 {
		t.Errorf("with a deadline in 10 s the server has %s", got)
	}
}

// An append that is under way when the store is closed returns, with an unknown outcome.
func TestBatchAppender_CloseDuringAppend(t *testing.T) {
	arrived := make(chan struct{}, 1)
	b := &batching{answer: func(r *streams.BatchAppendReq) *streams.BatchAppendResp {
		if streamOf(r) == "silent-1" {
			arrived <- struct{}{}
			return nil
		}
		return stored(1, 2)(r)
	}}
	store := b.openShared(t)
	failed := begin(within(t, hangLimit), store, "silent-1", oneEvent())
	<-arrived
	runtest.Must(t, store.Close())
	// It may have gone on to a call of its own before the driver was closed.
	if err := <-failed; err != nil && !errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("got %v", err)
	}
}

// An append that waits for its answer does not delay the appends of others.
func TestBatchAppender_SlowAppend(t *testing.T) {
	b := &batching{answer: silent}
	store := b.openShared(t)
	ctx, cancel := context.WithCancel(t.Context())
	var slow sync.WaitGroup
	for range 100 {
		slow.Go(func() {
			if _, err := store.Append(ctx, "silent-1", eventstore.NoStream, oneEvent()); !errors.Is(err, eventstore.ErrUnknown) {
				t.Errorf("got %v", err)
			}
		})
	}
	alone := b.single.Load()
	for range 200 {
		if _, err := store.Append(t.Context(), "a-1", eventstore.NoStream, oneEvent()); err != nil {
			t.Error(err)
		}
	}
	if got := b.single.Load() - alone; got != 0 {
		t.Errorf("%d appends went alone", got)
	}
	cancel()
	slow.Wait()
}

func BenchmarkAppend(b *testing.B) {
	conn := startNode(b)
	for _, together := range []bool{false, true} {
		b.Run(fmt.Sprint("together=", together), func(b *testing.B) {
			cfg := config(conn, 4)
			cfg.BatchAppends = together
			store, err := esdb.Open(cfg)
			runtest.Must(b, err)
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					event := eventstore.Proposed{ID: uuid.New(), Type: "a.b.v1", Data: make([]byte, 300), Meta: make([]byte, 100)}
					events := []eventstore.Proposed{event}
					if _, err := store.Append(b.Context(), "a-"+event.ID.String(), eventstore.NoStream, events); err != nil {
						b.Error(err)
					}
				}
			})
			b.StopTimer()
			runtest.Must(b, store.Close())
		})
	}
}
