package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annals-project/annals/internal/runtest"
)

// rawConn is a connection without credentials.
func rawConn(t *testing.T, addr string, transport credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(transport))
	runtest.Must(t, err)
	closeAtEnd(t, conn)
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
	runtest.Must(t, call.CloseSend())
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
	runtest.Must(t, err)
	c, err := esdb.NewClient(conf)
	runtest.Must(t, err)
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
	runtest.Must(t, err)
	cfg := memoryConfig()
	cfg.Certificate, cfg.Password = made, "open sesame"
	for range 2 {
		n := startNode(t, cfg)
		c := n.Connection()
		if c.Password != "open sesame" || c.Username != "admin" || !strings.HasPrefix(c.Addr, "127.0.0.1:") {
			t.Fatalf("connection %+v", c)
		}
		dial(t, n).append("s", anyRevision, newEvents(1)...)
		runtest.Must(t, n.Close())
	}
}

func newLoopback(*testing.T) net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2113} }

// Clients get an address that the certificate covers.
func TestAddress_Reachable(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 2113} }
	named := &x509.Certificate{DNSNames: []string{"*.example.com", "log.example.com"}}
	numbered := &x509.Certificate{DNSNames: []string{"log.example.com"}, IPAddresses: []net.IP{net.ParseIP("192.0.2.1")}}
	for _, tt := range []struct {
		name        string
		addr        net.Addr
		certificate *x509.Certificate
		want        string
	}{
		{"the loopback", tcp("127.0.0.1"), nil, "127.0.0.1:2113"},
		{"the loopback of IPv6", tcp("::1"), nil, "[::1]:2113"},
		{"all addresses", tcp("0.0.0.0"), nil, "127.0.0.1:2113"},
		{"a name", tcp("0.0.0.0"), named, "log.example.com:2113"},
		{"an address that it bears", tcp("192.0.2.1"), numbered, "192.0.2.1:2113"},
		{"an address that it does not bear", tcp("192.0.2.2"), numbered, "log.example.com:2113"},
		{"no name at all", tcp("192.0.2.2"), &x509.Certificate{}, "192.0.2.2:2113"},
	} {
		if got := reachable(tt.addr, tt.certificate); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// A node whose certificate cannot be read does not start.
func TestCertificate_Unreadable(t *testing.T) {
	for name, c := range map[string]*tls.Certificate{"empty": {}, "damaged": {Certificate: [][]byte{{1, 2, 3}}}} {
		cfg := memoryConfig()
		cfg.Certificate = c
		if n, err := Start(t.Context(), cfg); err == nil {
			t.Errorf("%s: started, close: %v", name, n.Close())
		}
	}
}

// secureServer is a server that asks for a password.
func secureServer(t *testing.T) endpoint {
	t.Helper()
	s := protocolServer(t, Config{})
	if !s.secure {
		t.Skip("a server without TLS serves every caller")
	}
	return s
}

// TestProtocol_NoCredentials: a caller without credentials is refused with the trailer by which clients recognize it.
// Discovery needs no credentials.
func TestProtocol_NoCredentials(t *testing.T) {
	s := secureServer(t)
	c := s.dialAs(t, "", "")
	stream := unused("denied")
	denied := metadata.Pairs("exception", "access-denied")
	for name, call := range map[string]func() (metadata.MD, error){
		"read a stream": func() (metadata.MD, error) {
			_, _, trailer, err := c.tryRead(ofStream(stream))
			return trailer, err
		},
		"read everything": func() (metadata.MD, error) {
			_, _, trailer, err := c.tryRead(limited(ofAll(), 1))
			return trailer, err
		},
		"subscribe": func() (metadata.MD, error) {
			_, _, trailer, err := c.tryRead(subscribed(ofAll()))
			return trailer, err
		},
		"append": func() (metadata.MD, error) {
			call, err := c.Append(runtest.Context(t))
			runtest.Must(t, err)
			for _, message := range []*streams.AppendReq{appendOptions(stream, none), newEvent("{}").message()} {
				if err := call.Send(message); err != nil && !errors.Is(err, io.EOF) { // the answer may have come first
					t.Fatal(err)
				}
			}
			_, err = call.CloseAndRecv()
			return call.Trailer(), err
		},
		"delete": func() (metadata.MD, error) {
			_, trailer, err := c.tryDelete(stream, anyRevision)
			return trailer, err
		},
		"tombstone": func() (metadata.MD, error) {
			_, trailer, err := c.tryTombstone(stream, anyRevision)
			return trailer, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			trailer, err := call()
			if status.Code(err) != codes.PermissionDenied || !strings.HasPrefix(message(err), "Access Denied") {
				t.Errorf("got %v", err)
			}
			same(t, "exception", denied.Get("exception"), trailer.Get("exception"))
		})
	}
	if err := features(t, c.conn); err != nil {
		t.Errorf("features: %v", err)
	}
	if err := members(t, c.conn); err != nil {
		t.Errorf("members: %v", err)
	}
}

func features(t *testing.T, conn *grpc.ClientConn) error {
	_, err := serverfeatures.NewServerFeaturesClient(conn).GetSupportedMethods(runtest.Context(t), &shared.Empty{})
	return err
}

func members(t *testing.T, conn *grpc.ClientConn) error {
	_, err := gossip.NewGossipClient(conn).Read(runtest.Context(t), &shared.Empty{})
	return err
}

// TestProtocol_BatchWithoutCredentials: an append of a batch call is answered with AccessDenied in the detail.
func TestProtocol_BatchWithoutCredentials(t *testing.T) {
	s := secureServer(t)
	call, err := s.dialAs(t, "", "").BatchAppend(runtest.Context(t))
	runtest.Must(t, err)
	request := deniedBatch()
	runtest.Must(t, call.Send(request))
	answer, err := call.Recv()
	runtest.Must(t, err)
	details := status.FromProto(answer.GetError()).Details()
	if answer.GetError().GetCode() != int32(codes.PermissionDenied) || answer.GetError().GetMessage() != "Access Denied" ||
		len(details) != 1 || !proto.Equal(answer.GetCorrelationId(), request.GetCorrelationId()) ||
		!proto.Equal(answer.GetStreamIdentifier(), request.GetOptions().GetStreamIdentifier()) {
		t.Fatalf("answer %v", answer)
	}
	if _, is := details[0].(*shared.AccessDenied); !is {
		t.Errorf("detail %v", details[0])
	}
}

func deniedBatch() *streams.BatchAppendReq {
	return &streams.BatchAppendReq{
		CorrelationId: structuredID(uuid.New()), IsFinal: true,
		Options: &streams.BatchAppendReq_Options{
			StreamIdentifier:       nameOf(unused("denied")),
			ExpectedStreamPosition: &streams.BatchAppendReq_Options_Any{Any: &emptypb.Empty{}},
		},
	}
}

// While one batch call without credentials is read, another one ends with its status, and reads nothing.
func TestBatch_StrangersOneAtATime(t *testing.T) {
	n := startNode(t, Config{})
	c := n.Connection()
	s := endpoint{addr: c.Addr, secure: true, transport: credentials.NewClientTLSFromCert(c.RootCAs, "")}
	type result struct {
		call   int
		answer *streams.BatchAppendResp
		err    error
	}
	results := make(chan result, 2)
	var calls []streams.Streams_BatchAppendClient
	for i := range 2 {
		call, err := s.dialAs(t, "", "").BatchAppend(runtest.Context(t))
		runtest.Must(t, err)
		calls = append(calls, call)
		go func() {
			answer, err := call.Recv()
			results <- result{i, answer, err}
		}()
	}
	ended := <-results
	if status.Code(ended.err) != codes.PermissionDenied {
		t.Fatalf("%v, %v", ended.answer, ended.err)
	}
	runtest.Must(t, calls[1-ended.call].Send(deniedBatch()))
	if read := <-results; read.answer.GetError().GetCode() != int32(codes.PermissionDenied) {
		t.Errorf("%v, %v", read.answer, read.err)
	}
}

// TestProtocol_WrongPassword: every method refuses a wrong password, also those that need none.
func TestProtocol_WrongPassword(t *testing.T) {
	s := secureServer(t)
	stream := unused("unknown")
	for name, c := range map[string]client{
		"another password": s.dialAs(t, s.user, s.password+"x"),
		"another user":     s.dialAs(t, unused("nobody"), s.password),
		"no password":      s.dialAs(t, s.user, ""),
	} {
		for method, call := range map[string]func() error{
			"Read":   func() error { _, _, _, err := c.tryRead(ofStream(stream)); return err },
			"Append": func() error { _, err := c.tryAppend(runtest.Context(t), stream, none, newEvents(1)...); return err },
			"BatchAppend": func() error {
				call, err := c.BatchAppend(runtest.Context(t))
				if err == nil {
					_, err = call.Recv()
				}
				return err
			},
			"Delete":              func() error { _, _, err := c.tryDelete(stream, anyRevision); return err },
			"Tombstone":           func() error { _, _, err := c.tryTombstone(stream, anyRevision); return err },
			"GetSupportedMethods": func() error { return features(t, c.conn) },
			"Gossip":              func() error { return members(t, c.conn) },
		} {
			wantCode(t, name+": "+method, call(), codes.Unauthenticated)
		}
	}
	if _, found, _, err := s.dial(t).tryRead(ofStream(stream)); found || err != nil {
		t.Errorf("something was written: %v", err)
	}
}

// TestProtocol_Features: the methods of Streams are listed in lower case, with the features by which clients choose how
// to call them.
func TestProtocol_Features(t *testing.T) {
	got, err := serverfeatures.NewServerFeaturesClient(protocolServer(t, Config{}).dial(t).conn).
		GetSupportedMethods(context.Background(), &shared.Empty{})
	runtest.Must(t, err)
	listed := map[string][]string{}
	for _, m := range got.GetMethods() {
		if m.GetServiceName() == "event_store.client.streams.streams" {
			listed[m.GetMethodName()] = m.GetFeatures()
		}
	}
	want := map[string][]string{
		"append": nil, "read": {"position", "events"}, "delete": nil, "tombstone": nil, "batchappend": {"deadline_duration"},
	}
	same(t, "fields", want, listed)
}
