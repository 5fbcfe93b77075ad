package node

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"

	"google.golang.org/grpc/credentials"
)

const (
	// protocolHTTP2 and protocolHTTP1 are the names by which a TLS client asks for a protocol.
	protocolHTTP2 = "h2"
	protocolHTTP1 = "http/1.1"
	// http2Preface is what an HTTP/2 connection begins with, and so one of gRPC.
	http2Preface = "PRI * HTTP/2.0"
	// maxRefusedBody is how many bytes after its headers a refused HTTP/1 request may send and still receive the answer.
	maxRefusedBody = 1 << 20
)

// onlyHTTP2 returns the connection if it speaks HTTP/2. Otherwise it answers one HTTP/1 request, closes the connection
// and returns credentials.ErrConnDispatched. The deadline that grpc sets for a handshake bounds all of that.
func onlyHTTP2(conn net.Conn) (net.Conn, error) {
	first := make([]byte, 0, len(http2Preface))
	for len(first) < len(http2Preface) {
		n, err := conn.Read(first[len(first):cap(first)])
		first = first[:len(first)+n]
		if !strings.HasPrefix(http2Preface, string(first)) {
			answerHTTP1(conn, first)
			return nil, credentials.ErrConnDispatched
		}
		if err != nil {
			return nil, err
		}
	}
	return &checkedConn{Conn: conn, held: first}, nil
}

// answerHTTP1 answers a request, of which the first bytes were read: a health check, or one that is not served. Clients
// fall back to HTTP/1 for what GetSupportedMethods does not list.
func answerHTTP1(conn net.Conn, first []byte) {
	defer func() { _ = conn.Close() }() // the client may have closed it
	head := io.LimitReader(io.MultiReader(bytes.NewReader(first), conn), maxHeaders)
	request, err := http.ReadRequest(bufio.NewReader(head))
	if err != nil { // not HTTP, too long or too late
		return
	}
	answer := &http.Response{ProtoMajor: 1, ProtoMinor: 1, Request: request, Close: true}
	if isHealthCheck(request.Method, request.URL.EscapedPath()) {
		answer.StatusCode = http.StatusNoContent
	} else {
		text := notServed(request.Method + " " + request.URL.EscapedPath())
		answer.StatusCode, answer.ContentLength = http.StatusNotFound, int64(len(text))
		answer.Header = http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}}
		answer.Body = io.NopCloser(strings.NewReader(text))
	}
	if answer.Write(conn) != nil {
		return
	}
	// A close while the client still sends would reset the connection, and the client could lose the answer.
	_, _ = io.CopyN(io.Discard, conn, maxRefusedBody) // until the client closes
}
