package node

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/internal/runtest"
)

// rawConn is a connection without credentials.
func rawConn(t *testing.T, addr string, transport credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(transport))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// methodsOf lists what a service has.
func methodsOf(services ...grpc.ServiceDesc) []string {
	var out []string
	for _, s := range services {
		for _, m := range s.Methods {
			out = append(out, "/"+s.ServiceName+"/"+m.MethodName)
		}
		for _, m := range s.Streams {
			out = append(out, "/"+s.ServiceName+"/"+m.StreamName)
		}
	}
	return out
}

// called is the status that a method ends with for a caller who sends nothing but a header.
func called(t *testing.T, conn *grpc.ClientConn, method, authorization string) codes.Code {
	t.Helper()
	ctx := runtest.Context(t)
	if authorization != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
	}
	call, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return status.Code(err)
	}
	if err := call.SendMsg(&shared.Empty{}); err != nil { // the answer may have come first
		t.Logf("%s: %v", method, err)
	}
	if err := call.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var ended error
	for ended == nil {
		ended = call.RecvMsg(&shared.Empty{})
	}
	if errors.Is(ended, io.EOF) {
		return codes.OK
	}
	return status.Code(ended)
}

func basicHeader(credentials string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(credentials))
}

// Every method except those of discovery requires the password, even a method that does not exist.
// A caller that sends the password learns that the method does not exist. No message is read before: all methods are
// streams.
func TestAccess_EveryMethodRequiresPassword(t *testing.T) {
	n := startNode(t, memoryConfig())
	c := n.Connection()
	conn := rawConn(t, c.Addr, credentials.NewClientTLSFromCert(c.RootCAs, ""))
	served := methodsOf(streams.Streams_ServiceDesc)
	missing := append(unserved(), "/nobody.knows/This")
	if len(served) != 5 || len(missing) < 20 {
		t.Fatalf("%d methods served, %d not", len(served), len(missing))
	}
	for name, tt := range map[string]struct {
		header string
		want   codes.Code
	}{
		"nothing":            {"", codes.PermissionDenied},
		"another password":   {basicHeader("admin:changeit"), codes.Unauthenticated},
		"another user":       {basicHeader("ops:" + c.Password), codes.Unauthenticated},
		"no user":            {basicHeader(":" + c.Password), codes.Unauthenticated},
		"the password alone": {basicHeader(c.Password), codes.PermissionDenied},
		"more than it":       {basicHeader("admin:" + c.Password + "x"), codes.Unauthenticated},
		"less than it":       {basicHeader("admin:" + c.Password[1:]), codes.Unauthenticated},
		"another scheme": {
			"Bearer " + strings.TrimPrefix(basicHeader("admin:"+c.Password), "Basic "), codes.PermissionDenied,
		},
		"no base64": {"Basic admin:" + c.Password, codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			for _, method := range append(missing, served...) {
				if got := called(t, conn, method, tt.header); got != tt.want {
					t.Errorf("%s: %v", method, got)
				}
			}
		})
	}
	for _, method := range missing {
		if got := called(t, conn, method, basicHeader("admin:"+c.Password)); got != codes.Unimplemented {
			t.Errorf("%s: %v with the password", method, got)
		}
	}
	for _, method := range served {
		got := called(t, conn, method, "basic "+strings.TrimPrefix(basicHeader("admin:"+c.Password), "Basic "))
		if got == codes.PermissionDenied || got == codes.Unauthenticated || got == codes.Unimplemented {
			t.Errorf("%s: %v with the password", method, got)
		}
	}
	for name, service := range n.server.GetServiceInfo() {
		for _, method := range service.Methods {
			if !method.IsClientStream && !method.IsServerStream {
				t.Errorf("grpc reads the message of %s/%s before the call is authorized", name, method.Name)
			}
		}
	}
	for _, method := range methodsOf(serverfeatures.ServerFeatures_ServiceDesc, gossip.Gossip_ServiceDesc) {
		if got := called(t, conn, method, ""); got != codes.OK {
			t.Errorf("%s: %v", method, got)
		}
	}
}

// The official client reports that the server does not support a method that does not exist.
func TestAccess_UnsupportedMethod(t *testing.T) {
	c := officialClient(t, startNode(t, memoryConfig()))
	err := c.CreatePersistentSubscription(runtest.Context(t), "s", "g", esdb.PersistentStreamSubscriptionOptions{})
	if got, ok := esdb.FromError(err); ok || got.Code() != esdb.ErrorCodeUnsupportedFeature {
		t.Errorf("persistent subscription: %v", err)
	}
	err = c.CreatePersistentSubscriptionToAll(runtest.Context(t), "g", esdb.PersistentAllSubscriptionOptions{})
	if got, ok := esdb.FromError(err); ok || got.Code() != esdb.ErrorCodeUnsupportedFeature {
		t.Errorf("persistent subscription to all: %v", err)
	}
}

// An insecure node serves every client, and a client needs only its connection string.
func TestNode_Insecure(t *testing.T) {
	cfg := memoryConfig()
	cfg.Insecure = true
	n := startNode(t, cfg)
	if c := n.Connection(); c.Username != "" || c.Password != "" || c.RootCAs != nil ||
		c.ConnectionString() != "esdb://"+c.Addr+"?tls=false" {
		t.Fatalf("connection %+v", c)
	}
	conf, err := esdb.ParseConnectionString(n.Connection().ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	c, err := esdb.NewClient(conf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.AppendToStream(runtest.Context(t), "s", esdb.AppendToStreamOptions{ExpectedRevision: esdb.NoStream{}},
		esdb.EventData{EventType: "t", ContentType: esdb.ContentTypeJson, Data: []byte("{}")}); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	conn := rawConn(t, n.Connection().Addr, insecure.NewCredentials())
	for _, method := range methodsOf(persistent.PersistentSubscriptions_ServiceDesc) {
		if got := called(t, conn, method, ""); got != codes.Unimplemented {
			t.Errorf("%s: %v", method, got)
		}
	}
}

// A node without TLS does not start if other machines could reach it, or if it is configured with
// secrets that it would not use.
func TestInsecureNode_Refused(t *testing.T) {
	some := &tls.Certificate{}
	for name, change := range map[string]func(*Config){
		"on all addresses":   func(c *Config) { c.Addr = "0.0.0.0:0" },
		"on all of IPv6":     func(c *Config) { c.Addr = "[::]:0" },
		"with a password":    func(c *Config) { c.Password = "secret" },
		"with a certificate": func(c *Config) { c.Certificate = some },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := memoryConfig()
			cfg.Insecure = true
			change(&cfg)
			n, err := Start(context.Background(), cfg)
			if err == nil {
				t.Fatalf("started, close: %v", n.Close())
			}
			if !strings.Contains(err.Error(), "loopback") && !strings.Contains(err.Error(), "insecure") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A configured certificate and password stay the same over restarts, and clients reach the node
// under the name in the certificate.
func TestConfig_Identity(t *testing.T) {
	made, err := newCertificate(newLoopback(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg := memoryConfig()
	cfg.Certificate, cfg.Password = made, "open sesame"
	for range 2 {
		n := startNode(t, cfg)
		c := n.Connection()
		if c.Password != "open sesame" || c.Username != "admin" || !strings.HasPrefix(c.Addr, "127.0.0.1:") {
			t.Fatalf("connection %+v", c)
		}
		dial(t, n).append("s", anyRevision, newEvents(1)...)
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
