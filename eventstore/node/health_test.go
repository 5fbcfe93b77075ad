package node

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/iotest"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

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
