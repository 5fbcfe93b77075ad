package node

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/projections"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/eventstore/node/wire"
	"github.com/annals-project/annals/internal/runtest"
)

// TestProtocol_MessageSize: a message over the limit of the transport, 16 MiB, ends its call with ResourceExhausted.
// The connection remains. A smaller message over the limit of an append, 1 MiB, is refused as an append.
func TestProtocol_MessageSize(t *testing.T) {
	const (
		below, above = 15 << 20, 18 << 20
		appended     = "Maximum Append Size of 1048576 Exceeded."
		transport    = "Received message exceeds the maximum configured message size."
	)
	c := protocolServer(t, Config{}).dial(t)
	stream := unused("large")
	exchange := func(method string, messages ...proto.Message) error {
		call, err := c.conn.NewStream(
			runtest.Context(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			"/"+streams.Streams_ServiceDesc.ServiceName+"/"+method)
		runtest.Must(t, err)
		for _, m := range messages {
			if err := call.SendMsg(m); err != nil && !errors.Is(err, io.EOF) { // the answer may have come first
				t.Fatal(err)
			}
		}
		runtest.Must(t, call.CloseSend())
		return call.RecvMsg(&streams.ReadResp{})
	}
	for _, tt := range []struct {
		name string
		err  error
		code codes.Code
		text string
	}{
		{
			"append",
			exchange("Append", appendOptions(stream, anyRevision), newEvent(strings.Repeat("x", above)).message()),
			codes.ResourceExhausted, transport,
		},
		{
			"append below",
			exchange("Append", appendOptions(stream, anyRevision), newEvent(strings.Repeat("x", below)).message()),
			codes.InvalidArgument, appended,
		},
		{
			"batch",
			exchange("BatchAppend", &streams.BatchAppendReq{
				CorrelationId: structuredID(uuid.New()), IsFinal: true,
				Options: &streams.BatchAppendReq_Options{
					StreamIdentifier:       nameOf(stream),
					ExpectedStreamPosition: &streams.BatchAppendReq_Options_Any{Any: &emptypb.Empty{}},
				},
				ProposedMessages: []*streams.BatchAppendReq_ProposedMessage{{
					Id: structuredID(uuid.New()), Data: make([]byte, above),
					Metadata: map[string]string{wire.KeyType: "tested", wire.KeyContentType: wire.ContentTypeRaw},
				}},
			}),
			codes.ResourceExhausted, transport,
		},
		{
			"read",
			exchange("Read", readOf(ofStream(strings.Repeat("x", above)))), codes.ResourceExhausted, transport,
		},
		{
			"delete",
			exchange("Delete", &streams.DeleteReq{Options: &streams.DeleteReq_Options{
				StreamIdentifier: nameOf(strings.Repeat("x", above)),
			}}),
			codes.ResourceExhausted, transport,
		},
		{
			"tombstone",
			exchange("Tombstone", &streams.TombstoneReq{Options: &streams.TombstoneReq_Options{
				StreamIdentifier: nameOf(strings.Repeat("x", above)),
			}}),
			codes.ResourceExhausted, transport,
		},
	} {
		if status.Code(tt.err) != tt.code || message(tt.err) != tt.text {
			t.Errorf("%s: %.200v", tt.name, tt.err)
		}
	}
	if _, found, _, err := c.tryRead(ofStream(stream)); found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
}

// A deletion without a request is refused.
func TestDelete_WithoutRequest(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	for _, method := range []string{"/Delete", "/Tombstone"} {
		call, err := c.conn.NewStream(
			runtest.Context(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			"/"+streams.Streams_ServiceDesc.ServiceName+method)
		runtest.Must(t, err)
		runtest.Must(t, call.CloseSend())
		wantCode(t, method, call.RecvMsg(&streams.DeleteResp{}), codes.InvalidArgument)
	}
}

// A message that is too long to be received whole ends its call with the same code.
func TestMessageSize_NotReceived(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	_, err := c.tryAppend(runtest.Context(t), "long", anyRevision, newEvent(strings.Repeat("x", maxReceived)))
	wantCode(t, "the answer", err, codes.ResourceExhausted)
}

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

// Every refusal of a call has the code, the text and the trailers by which clients recognize it.
func TestStatuses_Trailers(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	c.append("s", none, newEvents(3)...)
	for _, gone := range []string{"gone", "gone ü\n"} {
		c.append(gone, none, newEvents(1)...)
		c.tombstone(gone, anyRevision)
	}
	appended := func(stream string, expected storage.Expectation, e event, drop string) func() (metadata.MD, error) {
		return func() (metadata.MD, error) {
			call, err := c.Append(runtest.Context(t))
			if err != nil {
				return nil, err
			}
			msg := e.message()
			delete(msg.GetProposedMessage().Metadata, drop)
			if err := errors.Join(call.Send(appendOptions(stream, expected)), call.Send(msg)); err != nil {
				return nil, err
			}
			_, err = call.CloseAndRecv()
			return call.Trailer(), err
		}
	}
	read := func(o *readOptions) func() (metadata.MD, error) {
		return func() (metadata.MD, error) {
			_, _, trailer, err := c.tryRead(o)
			return trailer, err
		}
	}
	followed := func(o *readOptions) func() (metadata.MD, error) {
		return func() (metadata.MD, error) {
			call, err := c.Read(runtest.Context(t), readOf(subscribed(o)))
			for err == nil { // it may have been confirmed
				_, err = call.Recv()
			}
			return call.Trailer(), err
		}
	}
	deleted := func(stream string, expected storage.Expectation) func() (metadata.MD, error) {
		return func() (metadata.MD, error) {
			_, trailer, err := c.tryDelete(stream, expected)
			return trailer, err
		}
	}
	tombstoned := func(stream string, expected storage.Expectation) func() (metadata.MD, error) {
		return func() (metadata.MD, error) {
			_, trailer, err := c.tryTombstone(stream, expected)
			return trailer, err
		}
	}
	isGone := func(stream, header string) (codes.Code, string, metadata.MD) {
		return codes.FailedPrecondition, fmt.Sprintf("Event stream '%s' is deleted.", stream), metadata.Pairs("exception",
			"stream-deleted", "stream-name", header)
	}
	wrong := func(stream, expected, actual string) (codes.Code, string, metadata.MD) {
		return codes.FailedPrecondition,
			"Delete failed due to WrongExpectedVersion. Stream: " + stream + ", Expected version: " + expected + ", Actual version: " + actual,
			metadata.Pairs("exception", "wrong-expected-version", "stream-name", stream, "expected-version", expected,
				"actual-version", actual)
	}
	missing := func(property string) (codes.Code, string, metadata.MD) {
		return codes.InvalidArgument, "Required Metadata Property '" + property + "' is missing",
			metadata.Pairs("exception", "missing-required-metadata-property", "required-metadata-properties",
				"type,content-type")
	}
	type want func() (codes.Code, string, metadata.MD)
	gone := want(func() (codes.Code, string, metadata.MD) { return isGone("gone", "gone") })
	for _, tt := range []struct {
		name string
		call func() (metadata.MD, error)
		want want
	}{
		{"append to a tombstone", appended("gone", anyRevision, newEvent("{}"), ""), gone},
		{"read its metadata", read(ofStream("$$gone")), func() (codes.Code, string, metadata.MD) {
			return isGone("$$gone", "$$gone")
		}},
		{"read a tombstone", read(ofStream("gone")), gone},
		{"read it backwards", read(backwards(atEnd(ofStream("gone")))), gone},
		{"follow it", followed(ofStream("gone")), gone},
		{"follow it from its end", followed(atEnd(ofStream("gone"))), gone},
		{"delete a tombstone", deleted("gone", anyRevision), gone},
		{"tombstone a tombstone", tombstoned("gone", existing), gone},
		{"a name that is no header", read(ofStream("gone ü\n")), func() (codes.Code, string, metadata.MD) { return isGone("gone ü\n", "gone ??") }},
		{"delete at another revision", deleted("s", at(1)), func() (codes.Code, string, metadata.MD) { return wrong("s", "1", "2") }},
		{"delete as not there", deleted("s", none), func() (codes.Code, string, metadata.MD) { return wrong("s", "-1", "2") }},
		{"delete what is not there", deleted("new", existing), func() (codes.Code, string, metadata.MD) { return wrong("new", "-4", "-1") }},
		{"delete what never was", deleted("new", anyRevision), func() (codes.Code, string, metadata.MD) { return wrong("new", "-2", "-1") }},
		{"tombstone at another revision", tombstoned("s", at(7)), func() (codes.Code, string, metadata.MD) { return wrong("s", "7", "2") }},
		{"an event without a type", appended("s", anyRevision, newEvent("{}"), wire.KeyType), func() (codes.Code, string, metadata.MD) { return missing("type") }},
		{"an event without a content type", appended("s", anyRevision, newEvent("{}"), wire.KeyContentType), func() (codes.Code, string, metadata.MD) { return missing("content-type") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			trailer, err := tt.call()
			code, text, trailers := tt.want()
			if status.Code(err) != code || message(err) != text {
				t.Errorf("got %v, want %v: %s", err, code, text)
			}
			same(t, "trailers", trailers, exceptionTrailers(trailer))
		})
	}
}

// An append of a batch that was not decided has the code that Append would have ended with. The
// cause of a fault of the node itself is not sent.
func TestBatchAppend_Undecided(t *testing.T) {
	n := startNode(t, memoryConfig())
	for _, tt := range []struct {
		err    error
		code   codes.Code
		text   string
		detail any
	}{
		{storage.ErrClosing, codes.Unavailable, "Server Is Not Ready", &emptypb.Empty{}},
		{fmt.Errorf("wait: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "Timeout", &shared.Timeout{}},
		{errFull(), codes.ResourceExhausted, errFull().Error(), &emptypb.Empty{}},
		{errStalled(), codes.Aborted, errStalled().Error(), &emptypb.Empty{}},
		{errors.New("a secret path"), codes.Internal, "the event store failed; see its log", &emptypb.Empty{}},
	} {
		got := n.statusOf(tt.err)
		if got.Code() != tt.code || got.Message() != tt.text {
			t.Errorf("%v: %v %q", tt.err, got.Code(), got.Message())
		}
		if d := got.Details(); len(d) != 1 || fmt.Sprintf("%T", d[0]) != fmt.Sprintf("%T", tt.detail) {
			t.Errorf("%v: details %v", tt.err, d)
		}
	}
}

// A panic of a read is the error of that call. A panic of the writer stops all writes, and Failed
// reports it. The process continues, and serves reads.
func TestNode_Panics(t *testing.T) {
	var broken atomic.Bool
	n := startNode(t, Config{manualScavenge: true, now: func() time.Time {
		if broken.Load() {
			panic("out of order")
		}
		return time.Now()
	}})
	ctx, c := runtest.Context(t), officialClient(t, n)
	appendOne := func() error {
		_, err := c.AppendToStream(ctx, "account-1", esdb.AppendToStreamOptions{},
			esdb.EventData{EventType: "opened", ContentType: esdb.ContentTypeJson, Data: []byte(`{}`)})
		return err
	}
	readOne := func() error {
		read, err := c.ReadStream(ctx, "account-1", esdb.ReadStreamOptions{}, 1)
		if err != nil {
			return err
		}
		defer read.Close()
		_, err = read.Recv()
		return err
	}
	runtest.Must(t, appendOne())
	broken.Store(true)
	if err := readOne(); err == nil {
		t.Error("the read has no error")
	}
	if n.Err() != nil {
		t.Errorf("a panic of a read stopped the node: %v", n.Err())
	}
	if err := appendOne(); err == nil {
		t.Error("the append has no error")
	}
	select {
	case <-n.Failed():
	case <-ctx.Done():
		t.Fatal("the node has not failed")
	}
	broken.Store(false)
	if err := appendOne(); err == nil {
		t.Error("a later append has no error")
	}
	if err := readOne(); err != nil {
		t.Errorf("a later read: %v", err)
	}
}
