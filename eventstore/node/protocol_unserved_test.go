package node

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/projections"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/internal/runtest"
)

// unserved are the methods that a genuine server has and the node does not.
func unserved() []string {
	return append(methodsOf(persistent.PersistentSubscriptions_ServiceDesc, projections.Projections_ServiceDesc),
		"/event_store.client.users.Users/Create", "/event_store.client.users.Users/Update",
		"/event_store.client.users.Users/Delete", "/event_store.client.users.Users/Disable",
		"/event_store.client.users.Users/Enable", "/event_store.client.users.Users/Details",
		"/event_store.client.users.Users/ChangePassword", "/event_store.client.users.Users/ResetPassword",
		"/event_store.client.operations.Operations/StartScavenge", "/event_store.client.operations.Operations/Shutdown",
		"/event_store.client.monitoring.Monitoring/Stats")
}

// secureAndNot runs a test with a node that uses TLS and with one that does not.
func secureAndNot(t *testing.T, test func(*testing.T, endpoint)) {
	for name, cfg := range map[string]Config{"with TLS": {}, "without TLS": {Insecure: true}} {
		t.Run(name, func(t *testing.T) {
			s := protocolServer(t, cfg)
			if s.own == nil {
				t.Skip("a genuine server serves all of this")
			}
			test(t, s)
		})
	}
}

// refusal calls a method with an empty message, and returns the status that the call ends with.
func refusal(t *testing.T, conn *grpc.ClientConn, method string) error {
	t.Helper()
	call, err := conn.NewStream(runtest.Context(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	runtest.Must(t, err)
	if err := call.SendMsg(&shared.Empty{}); err != nil && !errors.Is(err, io.EOF) { // the answer may have come first
		t.Fatal(err)
	}
	runtest.Must(t, call.CloseSend())
	return call.RecvMsg(&shared.Empty{})
}

// TestProtocol_UnservedMethods: a call of a service that the node lacks names the method in its refusal.
func TestProtocol_UnservedMethods(t *testing.T) {
	secureAndNot(t, func(t *testing.T, s endpoint) {
		conn := s.dial(t).conn
		for _, method := range unserved() {
			err := refusal(t, conn, method)
			if status.Code(err) != codes.Unimplemented || message(err) != notServed(method) {
				t.Errorf("%s: %v", method, err)
			}
		}
	})
}

// TestProtocol_UnservedHTTP: an HTTP/1 request on the port of gRPC is answered 404 with the words of gRPC.
func TestProtocol_UnservedHTTP(t *testing.T) {
	secureAndNot(t, func(t *testing.T, s endpoint) {
		scheme, transport := "http://", &http.Transport{}
		if s.secure {
			scheme, transport.TLSClientConfig = "https://", s.tls
		}
		t.Cleanup(transport.CloseIdleConnections)
		for _, tt := range []struct{ method, path, body string }{
			{http.MethodGet, "/subscriptions", ""},
			{http.MethodGet, "/subscriptions/a%2Fb/group/info?x=1", ""},
			{http.MethodPost, "/subscriptions/s/group/replayParked", "{}"},
			{http.MethodPost, "/admin/scavenge", strings.Repeat("x", maxRefusedBody/2)},
			{http.MethodHead, "/users/admin", ""},
		} {
			request, err := http.NewRequestWithContext(
				runtest.Context(t), tt.method, scheme+s.addr+tt.path, strings.NewReader(tt.body))
			runtest.Must(t, err)
			request.SetBasicAuth(s.user, s.password)
			answer, err := transport.RoundTrip(request)
			if err != nil {
				t.Errorf("%s %s: %v", tt.method, tt.path, err)
				continue
			}
			text, err := io.ReadAll(answer.Body)
			runtest.Must(t, err)
			runtest.Must(t, answer.Body.Close())
			path, _, _ := strings.Cut(tt.path, "?")
			want := notServed(tt.method + " " + path)
			if tt.method == http.MethodHead {
				want = ""
			}
			if answer.StatusCode != http.StatusNotFound || string(text) != want ||
				answer.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Errorf("%s %s: %s, %v, %q", tt.method, tt.path, answer.Status, answer.Header, text)
			}
		}
		s.dial(t).append(unused("afterwards"), none, newEvents(1)...)
	})
}

// A TLS client may leave the choice of the protocol open, or ask for both.
func TestNode_ChoosesProtocol(t *testing.T) {
	n := startNode(t, memoryConfig())
	for _, tt := range []struct {
		offered []string
		chosen  string
		served  bool
	}{
		{nil, "", true},
		{[]string{protocolHTTP1}, protocolHTTP1, true},
		{[]string{protocolHTTP1, protocolHTTP2}, protocolHTTP2, false},
		{[]string{"spdy/3"}, "", false},
	} {
		conn, err := (&tls.Dialer{Config: &tls.Config{
			RootCAs: n.Connection().RootCAs, NextProtos: tt.offered, MinVersion: tls.VersionTLS12,
		}}).DialContext(t.Context(), "tcp", n.Connection().Addr)
		if err != nil {
			if tt.chosen != "" || tt.served {
				t.Errorf("%v: %v", tt.offered, err)
			}
			continue
		}
		if got := conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != tt.chosen {
			t.Errorf("of %v the node chose %q", tt.offered, got)
		}
		if tt.served {
			_, err := io.WriteString(conn, "GET /info HTTP/1.1\r\nHost: node\r\n\r\n")
			runtest.Must(t, err)
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			runtest.Must(t, err)
			if answer.StatusCode != http.StatusNotFound {
				t.Errorf("%v: %s", tt.offered, answer.Status)
			}
			runtest.Must(t, answer.Body.Close())
		}
		runtest.Must(t, conn.Close())
	}
}

// gRPC works over a TLS connection that names no protocol, as over one that names HTTP/2.
func TestNode_ServesGRPCWithoutChoice(t *testing.T) {
	n := startNode(t, memoryConfig())
	c := n.Connection()
	conn, err := grpc.NewClient(c.Addr, grpc.WithTransportCredentials(silent{c.RootCAs}))
	runtest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	if err := refusal(t, conn, open[0]+"GetSupportedMethods"); err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// silent are the credentials of a client that asks for no protocol.
type silent struct{ roots *x509.CertPool }

func (s silent) ClientHandshake(
	ctx context.Context, _ string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	conn := tls.Client(raw, &tls.Config{RootCAs: s.roots, ServerName: "localhost", MinVersion: tls.VersionTLS12})
	return conn, credentials.TLSInfo{State: conn.ConnectionState()}, conn.HandshakeContext(ctx)
}

func (silent) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.ErrUnsupported
}

func (silent) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}
func (s silent) Clone() credentials.TransportCredentials { return s }
func (silent) OverrideServerName(string) error           { return nil }

// An HTTP/1 connection is closed if its headers are too long, if they are not HTTP, and when the time of a handshake is
// over.
func TestHTTP1_Bounds(t *testing.T) {
	for name, tt := range map[string]struct {
		sent string
		late bool
	}{
		"headers too long": {sent: "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 2*maxHeaders)},
		"not HTTP":         {sent: "\x00\r\n\r\n"},
		"too late":         {sent: "GET / HTTP/1.1\r\n", late: true},
		"nothing":          {late: true},
		"part of HTTP/2":   {sent: http2Preface[:5], late: true},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			t.Cleanup(func() { _ = far.Close() })
			written := make(chan struct{})
			go func() {
				defer close(written)
				_, _ = io.WriteString(far, tt.sent) // the other end may close first
				if tt.late {
					_ = near.SetDeadline(time.Now())
				}
			}()
			if _, err := onlyHTTP2(near); err == nil {
				t.Error("the connection is served")
			}
			_ = near.Close() // as grpc does after an error
			<-written
			if answer, _ := io.ReadAll(far); len(answer) > 0 {
				t.Errorf("answered %q", answer)
			}
		})
	}
}
