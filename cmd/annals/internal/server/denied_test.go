package server

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node/nodetest"
)

// An ordinary user of an EventStoreDB may not read $all until the metadata of $all allows it.
func TestAwaitLog_AccessDenied(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, call grpc.ServerStream) error {
		if method, _ := grpc.MethodFromServerStream(call); strings.HasSuffix(method, "/GetSupportedMethods") {
			return status.Error(codes.Unimplemented, "not supported")
		}
		return status.Error(codes.PermissionDenied, "Access Denied")
	}))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	store := nodetest.Open(t, esdb.Config{
		ConnectionString: "esdb://" + listener.Addr().String() + "?tls=false", Logger: slog.New(slog.DiscardHandler),
	})
	err = (&storage{store: store}).awaitLog(t.Context(), slog.New(slog.DiscardHandler))
	for _, want := range []string{"ANNALS_EVENTSTORE", "Access Denied", `{"$acl":{"$r":["$admins","USER"]}}`, "$$$all"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s in it", err, want)
		}
	}
}
