package esdb_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node/clustertest"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
)

func TestMain(m *testing.M) {
	clustertest.Main()
	goleak.VerifyTestMain(m)
}

// fake is a server that answers what a test prescribes: everything that a sound server does not do
// on request.
type fake struct {
	streams.UnimplementedStreamsServer
	serverfeatures.UnimplementedServerFeaturesServer

	onRead   func(*streams.ReadReq, streams.Streams_ReadServer) error
	onAppend func([]*streams.AppendReq, streams.Streams_AppendServer) error
	onDelete func(context.Context) (*streams.DeleteResp, error)

	mu    sync.Mutex
	calls []metadata.MD
}

func (f *fake) called(ctx context.Context) {
	md, _ := metadata.FromIncomingContext(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, md)
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

func (f *fake) Read(req *streams.ReadReq, out streams.Streams_ReadServer) error {
	f.called(out.Context())
	return f.onRead(req, out)
}

func (f *fake) Append(in streams.Streams_AppendServer) error {
	f.called(in.Context())
	var all []*streams.AppendReq
	for {
		req, err := in.Recv()
		if err != nil {
			break
		}
		all = append(all, req)
	}
	return f.onAppend(all, in)
}

func (f *fake) Delete(ctx context.Context, _ *streams.DeleteReq) (*streams.DeleteResp, error) {
	f.called(ctx)
	return f.onDelete(ctx)
}

func (f *fake) Tombstone(ctx context.Context, _ *streams.TombstoneReq) (*streams.TombstoneResp, error) {
	f.called(ctx)
	if _, err := f.onDelete(ctx); err != nil {
		return nil, err
	}
	return &streams.TombstoneResp{
		PositionOption: &streams.TombstoneResp_Position_{Position: &streams.TombstoneResp_Position{CommitPosition: 9}},
	}, nil
}

// serve starts the server at an address; stop ends it at once.
func (f *fake) serve(t *testing.T, addr string, opts ...grpc.ServerOption) (at string, stop func()) {
	t.Helper()
	server := grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(17<<20))...)
	streams.RegisterStreamsServer(server, f)
	serverfeatures.RegisterServerFeaturesServer(server, f)
	return serving(t, addr, server)
}

// serving runs a server at an address.
func serving(t *testing.T, addr string, server *grpc.Server) (at string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", addr)
	runtest.Must(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			server.Stop()
			if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				t.Errorf("serve: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

// insecure is a store of one or more plain servers that gives up finding them soon.
func insecure(t *testing.T, addrs ...string) *esdb.Store {
	t.Helper()
	return nodetest.Open(t, esdb.Config{
		ConnectionString: "esdb://" + strings.Join(
			addrs, ",",
		) + "?tls=false&maxDiscoverAttempts=2&discoveryInterval=5", Logger: quiet(),
	})
}

// event is an event as a server sends it.
func event(stream, name string, revision, position uint64) *streams.ReadResp {
	return &streams.ReadResp{Content: &streams.ReadResp_Event{Event: &streams.ReadResp_ReadEvent{
		Event: &streams.ReadResp_ReadEvent_RecordedEvent{
			Id:               &shared.UUID{Value: &shared.UUID_String_{String_: "f7a0c3b4-2f43-4a52-9a3c-4a1f6a1d7a01"}},
			StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)},
			StreamRevision:   revision, CommitPosition: position, PreparePosition: position,
			Metadata: map[string]string{"type": name, "content-type": "application/json", "created": "17000000000000000"},
		},
		Position: &streams.ReadResp_ReadEvent_CommitPosition{CommitPosition: position},
	}}}
}

func confirmation() *streams.ReadResp {
	return &streams.ReadResp{
		Content: &streams.ReadResp_Confirmation{
			Confirmation: &streams.ReadResp_SubscriptionConfirmation{SubscriptionId: "1"},
		},
	}
}

func appended(revision, position uint64) *streams.AppendResp {
	return &streams.AppendResp{Result: &streams.AppendResp_Success_{Success: &streams.AppendResp_Success{
		CurrentRevisionOption: &streams.AppendResp_Success_CurrentRevision{CurrentRevision: revision},
		PositionOption: &streams.AppendResp_Success_Position{
			Position: &streams.AppendResp_Position{CommitPosition: position, PreparePosition: position},
		},
	}}}
}

// failing is a status with trailers, as a server refuses a call.
type failing struct {
	code     codes.Code
	text     string
	trailers []string
}

func (f failing) on(ctx context.Context) error {
	if err := grpc.SetTrailer(ctx, metadata.Pairs(f.trailers...)); err != nil {
		return err
	}
	return status.Error(f.code, f.text)
}

// begin begins an append, and returns where its error comes.
func begin(ctx context.Context, store *esdb.Store, stream string, events []eventstore.Proposed) <-chan error {
	failed := make(chan error, 1)
	go func() {
		_, err := store.Append(ctx, stream, eventstore.NoStream, events)
		failed <- err
	}()
	return failed
}

func oneEvent() []eventstore.Proposed {
	return []eventstore.Proposed{{ID: [16]byte{1}, Type: "thing.done.v1", Data: []byte(`{}`), Meta: []byte(`{}`)}}
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// wantError checks that an error is each of some.
func wantError(t testing.TB, what string, err error, all ...error) {
	t.Helper()
	for _, want := range all {
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}
