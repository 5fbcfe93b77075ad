package node

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/iotest"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/internal/runtest"
)

// TestProtocol_HealthCheck: a health check of containers is answered 204 without a password, by each protocol that the
// client chooses, again and again.
func TestProtocol_HealthCheck(t *testing.T) {
	for name, cfg := range map[string]Config{"with TLS": {}, "without TLS": {Insecure: true}} {
		t.Run(name, func(t *testing.T) {
			s := protocolServer(t, cfg)
			for protocol, check := range s.httpClients(t) {
				for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodGet} {
					if code := s.ask(t, check, method, healthPath); code != http.StatusNoContent {
						t.Errorf("%s: %s is answered %d", protocol, method, code)
					}
				}
			}
			s.dial(t).append(unused("afterwards"), none, newEvents(1)...)
		})
	}
}

// Only that path is answered, and only to a reader.
func TestHealthCheck_NothingElse(t *testing.T) {
	for name, cfg := range map[string]Config{"with TLS": {}, "without TLS": {Insecure: true}} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, cfg)
			s := endpoint{addr: n.Connection().Addr, own: n}
			if s.secure = n.Connection().RootCAs != nil; s.secure {
				s.tls = &tls.Config{RootCAs: n.Connection().RootCAs, MinVersion: tls.VersionTLS12}
			}
			for protocol, check := range s.httpClients(t) {
				for _, request := range [][2]string{
					{http.MethodPost, healthPath}, {http.MethodGet, healthPath + "/x"}, {http.MethodGet, "/"},
				} {
					if code := s.ask(t, check, request[0], request[1]); code < http.StatusBadRequest {
						t.Errorf("%s: %v is answered %d", protocol, request, code)
					}
				}
				check.CloseIdleConnections() // by HTTP/2, the first request of a connection counts
				if code := s.ask(t, check, http.MethodGet, healthPath+"?a=b"); code != http.StatusNoContent {
					t.Errorf("%s: with a query: %d", protocol, code)
				}
			}
		})
	}
}

// httpClients returns the ways in which a health check may ask the server, by name.
func (s endpoint) httpClients(t *testing.T) map[string]*http.Transport {
	first, second := new(http.Protocols), new(http.Protocols)
	first.SetHTTP1(true)
	if s.secure {
		second.SetHTTP2(true)
	} else {
		second.SetUnencryptedHTTP2(true)
	}
	clients := map[string]*http.Transport{"HTTP/1": {Protocols: first, TLSClientConfig: s.tls.Clone()}}
	if s.secure || s.own != nil { // a genuine server without TLS may refuse HTTP/2 to those who are no client of gRPC
		clients["HTTP/2"] = &http.Transport{Protocols: second, TLSClientConfig: s.tls.Clone()}
	}
	for _, c := range clients {
		t.Cleanup(c.CloseIdleConnections)
	}
	return clients
}

// ask makes a request without credentials, and returns the status of the answer.
func (s endpoint) ask(t *testing.T, client *http.Transport, method, path string) int {
	t.Helper()
	scheme := "http://"
	if s.secure {
		scheme = "https://"
	}
	request, err := http.NewRequestWithContext(runtest.Context(t), method, scheme+s.addr+path, nil)
	runtest.Must(t, err)
	answer, err := client.RoundTrip(request)
	runtest.Must(t, err)
	_, err = io.Copy(io.Discard, answer.Body)
	runtest.Must(t, err)
	runtest.Must(t, answer.Body.Close())
	return answer.StatusCode
}

// Bytes of a connection pass unchanged, however they arrive: those of a request of gRPC, and those that are no HTTP/2.
func TestCheckedConn_PassesOn(t *testing.T) {
	for name, sent := range map[string]string{
		"a call":         http2.ClientPreface + settings + callFrame(t, "POST", "/x") + settings + "rest",
		"a large header": http2.ClientPreface + "\x00\x90\x00\x04\x00\x00\x00\x00\x00" + string(make([]byte, 0x9000)),
		"no frames":      http2.ClientPreface + "\xff\xff\xff" + string(make([]byte, 2*maxFirstBytes)),
		"no HTTP/2":      "PRI * HTTP/3.0 and more",
		"split headers":  http2.ClientPreface + "\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82" + settings,
	} {
		for way, read := range map[string]func(io.Reader) io.Reader{
			"at once":  func(r io.Reader) io.Reader { return r },
			"by bytes": iotest.OneByteReader, "with the end": iotest.DataErrReader,
		} {
			near, far := net.Pipe()
			go func() {
				_, _ = io.WriteString(far, sent) // the reader compares it
				_ = far.Close()
			}()
			got, err := io.ReadAll(&checkedConn{Conn: readerConn{near, read(near)}})
			if err != nil || string(got) != sent {
				t.Errorf("%s, %s: %d bytes of %d, %v", name, way, len(got), len(sent), err)
			}
			_ = near.Close()
		}
	}
}

const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// callFrame is the frame of a request.
func callFrame(t *testing.T, method, path string) string {
	t.Helper()
	var block, frame bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: method}, {Name: ":path", Value: path}} {
		runtest.Must(t, encoder.WriteField(f))
	}
	runtest.Must(t, http2.NewFramer(&frame, nil).WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true,
	}))
	return frame.String()
}

// readerConn is a connection that is read in another way.
type readerConn struct {
	net.Conn
	from io.Reader
}

func (c readerConn) Read(b []byte) (int, error) { return c.from.Read(b) }

// stranger is a client that speaks HTTP/2 by hand, so that it can send what no library sends.
type stranger struct {
	t       *testing.T
	conn    net.Conn
	framer  *http2.Framer
	setting map[http2.SettingID]uint32
}

func newStranger(t *testing.T, n *Node) *stranger {
	t.Helper()
	c := n.Connection()
	conn, err := (&tls.Dialer{Config: &tls.Config{
		RootCAs: c.RootCAs, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	}}).DialContext(t.Context(), "tcp", c.Addr)
	runtest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	runtest.Must(t, conn.SetDeadline(time.Now().Add(runtest.Timeout)))
	s := &stranger{t: t, conn: conn, framer: http2.NewFramer(conn, conn), setting: map[http2.SettingID]uint32{}}
	s.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err = io.WriteString(conn, http2.ClientPreface)
	runtest.Must(t, err)
	runtest.Must(t, s.framer.WriteSettings())
	for len(s.setting) == 0 {
		frame, err := s.framer.ReadFrame()
		runtest.Must(t, err)
		if f, is := frame.(*http2.SettingsFrame); is && !f.IsAck() {
			runtest.Must(t, f.ForeachSetting(func(set http2.Setting) error { s.setting[set.ID] = set.Val; return nil }))
			runtest.Must(t, s.framer.WriteSettingsAck())
		}
	}
	return s
}

// call begins a message of 16 MiB and sends as much of it as the window takes. It returns the status of the answer and
// by how much the node widened the window of the call.
func (s *stranger) call(id uint32, method string, headers ...hpack.HeaderField) (grpcStatus string, widened uint32) {
	s.t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "https"},
		{Name: ":path", Value: method},
		{Name: ":authority", Value: "node"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}, headers...) {
		runtest.Must(s.t, enc.WriteField(f))
	}
	runtest.Must(s.t, s.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true,
	}))
	message := make([]byte, s.setting[http2.SettingInitialWindowSize])
	binary.BigEndian.PutUint32(message[1:], 16<<20)
	for len(message) > 0 {
		n := min(len(message), 16<<10)
		if err := s.framer.WriteData(id, false, message[:n]); err != nil {
			break // the node may have answered and closed
		}
		message = message[n:]
	}
	for grpcStatus == "" {
		frame, err := s.framer.ReadFrame()
		runtest.Must(s.t, err)
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				if f.StreamID == id && field.Name == "grpc-status" {
					grpcStatus = field.Value
				}
			}
		case *http2.WindowUpdateFrame:
			if f.StreamID == id {
				widened += f.Increment
			}
		}
	}
	return grpcStatus, widened
}

// Before the node knows the password, it receives at most 64 KiB of a call, whatever the message claims to be. A batch
// call is the exception; see TestBatch_StrangersOneAtATime.
func TestAccess_StrangerSendsLittle(t *testing.T) {
	s := newStranger(t, startNode(t, memoryConfig()))
	if w := s.setting[http2.SettingInitialWindowSize]; w != streamWindow || w > 64<<10 {
		t.Errorf("a call begins with a window of %d", w)
	}
	if most := s.setting[http2.SettingMaxConcurrentStreams]; most != maxStreams {
		t.Errorf("%d calls of a connection at once", most)
	}
	if most := s.setting[http2.SettingMaxHeaderListSize]; most != maxHeaders {
		t.Errorf("%d bytes of headers", most)
	}
	id := uint32(1)
	for method, want := range map[string]string{
		"/event_store.client.streams.Streams/Delete":                             "7",
		"/event_store.client.streams.Streams/Append":                             "7",
		"/nobody.knows/This":                                                     "7",
		"/event_store.client.server_features.ServerFeatures/GetSupportedMethods": "0",
		"/event_store.client.gossip.Gossip/Read":                                 "0",
	} {
		if got, widened := s.call(id, method); got != want || widened != 0 {
			t.Errorf("%s: status %s, the window was widened by %d", method, got, widened)
		}
		id += 2
	}
	wrong := hpack.HeaderField{Name: "authorization", Value: basicHeader("admin:wrong")}
	for _, method := range append(methodsOf(streams.Streams_ServiceDesc), open[0]+"GetSupportedMethods", open[1]+"Read") {
		if got, widened := s.call(id, method, wrong); got != "16" || widened != 0 {
			t.Errorf("%s: status %s with a wrong password, the window was widened by %d", method, got, widened)
		}
		id += 2
	}
}

// accepted is a listener of connections that a test makes.
type accepted struct {
	net.Listener
	next chan net.Conn
}

func (a accepted) Accept() (net.Conn, error) {
	c, ok := <-a.next
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func TestConnections_NewReplacesOldestWithoutAdmittedCall(t *testing.T) {
	made := accepted{next: make(chan net.Conn, 10)}
	l := newConnections(made, 3)
	connect := func() (server *connection, client net.Conn) {
		t.Helper()
		near, far := net.Pipe()
		made.next <- near
		c, err := l.Accept()
		runtest.Must(t, err)
		return c.(*connection), far
	}
	isClosed := func(client net.Conn) bool {
		return errors.Is(client.SetReadDeadline(time.Now()), io.ErrClosedPipe) // of either end
	}
	first, firstEnd := connect()
	first.admit()
	second, secondEnd := connect()
	third, thirdEnd := connect()
	fourth, fourthEnd := connect()
	if isClosed(firstEnd) || !isClosed(secondEnd) || isClosed(thirdEnd) || isClosed(fourthEnd) {
		t.Error("the fourth connection does not replace the oldest without an admitted call")
	}
	second.admit() // its call was being admitted when it was replaced
	runtest.Must(t, second.Close())
	third.admit()
	fourth.admit()
	near, refused := net.Pipe()
	made.next <- near
	close(made.next)
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) || !isClosed(refused) {
		t.Errorf("a connection without room is accepted: %v", err)
	}
	for range 2 { // closing twice counts once
		runtest.Must(t, first.Close())
	}
	if l.open != 2 || l.strangers.Len() != 0 {
		t.Errorf("%d open, %d without an admitted call", l.open, l.strangers.Len())
	}
}

// Connections that send no password do not keep out the clients that do.
func TestNode_StrangersHoldAllConnections(t *testing.T) {
	n := startNode(t, memoryConfig())
	for range maxConnections + 10 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", n.Connection().Addr)
		runtest.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	dial(t, n).append("s", anyRevision, newEvents(1)...)
}

// The end of the listener closes the connections on which no call was admitted, and accepts no further one: the node
// does not wait for clients that send nothing.
func TestConnections_CloseEndsStrangers(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	runtest.Must(t, err)
	l := newConnections(listener, 3)
	pipe := func() (*connection, net.Conn) {
		near, far := net.Pipe()
		return l.admit(near), far
	}
	client, clientEnd := pipe()
	client.admit()
	_, strangerEnd := pipe()
	runtest.Must(t, l.Close())
	if err := strangerEnd.SetReadDeadline(time.Now()); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the connection of a stranger: %v", err)
	}
	runtest.Must(t, clientEnd.SetReadDeadline(time.Now()))
	if late, _ := pipe(); late != nil {
		t.Error("a late connection is accepted")
	}
}

// The end of a node does not wait for the message of a batch call without credentials.
func TestBatch_SilentStrangerWhileNodeEnds(t *testing.T) {
	n := startNode(t, memoryConfig())
	c := n.Connection()
	s := endpoint{addr: c.Addr, secure: true, transport: credentials.NewClientTLSFromCert(c.RootCAs, "")}
	var calls []streams.Streams_BatchAppendClient
	for range 2 { // one of them is being read, and the other one ends
		call, err := s.dialAs(t, "", "").BatchAppend(runtest.Context(t))
		runtest.Must(t, err)
		calls = append(calls, call)
	}
	ended := make(chan error, len(calls))
	for _, call := range calls {
		go func() {
			_, err := call.Recv()
			ended <- err
		}()
	}
	if err := <-ended; status.Code(err) != codes.PermissionDenied {
		t.Fatal(err)
	}
	runtest.Must(t, n.Close())
	if err := <-ended; err == nil {
		t.Error("the call that was being read was answered")
	}
}
