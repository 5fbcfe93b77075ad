package clustertest

import (
	"errors"
	"net"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

// Guard is an event store in front of an insecure node. It denies its user rights, as an EventStoreDB with lists of
// rights ("$acl") does; a node has none.
type Guard struct {
	addr   string
	member *member

	mu     sync.Mutex
	denied map[eventstore.Right]bool
}

// NewGuard starts a guard that denies nothing. It ends with the test.
func NewGuard(t testing.TB, node string) *Guard {
	t.Helper()
	conn, err := grpc.NewClient(node, grpc.WithTransportCredentials(insecure.NewCredentials()))
	runtest.Must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	runtest.Must(t, err)
	g := &Guard{addr: listener.Addr().String(), member: &member{node: conn}}
	server := grpc.NewServer(grpc.ForceServerCodecV2(newFrames()), grpc.MaxRecvMsgSize(maxMessage),
		grpc.UnknownServiceHandler(g.forward))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := errors.Join(<-served, conn.Close()); err != nil {
			t.Error(err)
		}
	})
	return g
}

// ConnectionString is how clients reach the guard.
func (g *Guard) ConnectionString() string {
	return "esdb://" + g.addr + "?tls=false&discoveryInterval=5"
}

// Deny denies these rights of all streams, and no others.
func (g *Guard) Deny(rights ...eventstore.Right) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.denied = map[eventstore.Right]bool{}
	for _, r := range rights {
		g.denied[r] = true
	}
}

func (g *Guard) forward(_ any, call grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(call)
	if path.Base(method) == "BatchAppend" {
		return status.Error(codes.Unimplemented, "the guard takes appends one by one")
	}
	requests, err := receive(call)
	if err != nil {
		return err
	}
	right, err := rightFor(path.Base(method), requests)
	if err != nil {
		return err
	}
	g.mu.Lock()
	denied := g.denied[right]
	g.mu.Unlock()
	if denied {
		call.SetTrailer(metadata.Pairs("exception", "access-denied"))
		return status.Error(codes.PermissionDenied, "Access Denied")
	}
	return g.member.send(call.Context(), call, method, requests, func(f *frame) error { return call.SendMsg(f) })
}

// rightFor returns the right that a call needs, "" for none.
func rightFor(method string, requests []*frame) (eventstore.Right, error) {
	if len(requests) == 0 {
		return "", nil
	}
	switch method {
	case "Delete", "Tombstone":
		return eventstore.MayDelete, nil
	case "Append":
		var first streams.AppendReq
		err := proto.Unmarshal(requests[0].bytes, &first)
		if isMetadata(first.GetOptions().GetStreamIdentifier().GetStreamName()) {
			return eventstore.MayWriteMetadata, err
		}
		return eventstore.MayWrite, err
	case "Read":
		var first streams.ReadReq
		err := proto.Unmarshal(requests[0].bytes, &first)
		if isMetadata(first.GetOptions().GetStream().GetStreamIdentifier().GetStreamName()) {
			return eventstore.MayReadMetadata, err
		}
		return eventstore.MayRead, err
	default:
		return "", nil
	}
}

func isMetadata(stream []byte) bool { return strings.HasPrefix(string(stream), "$$") }
