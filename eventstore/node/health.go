package node

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/credentials"
)

// healthPath is where the health checks of containers ask an EventStoreDB whether it runs. It is answered 204 to every
// caller.
const healthPath = "/health/live"

// isHealthCheck reports whether a request asks whether the node runs.
func isHealthCheck(method, target string) bool {
	path, _, _ := strings.Cut(target, "?")
	return path == healthPath && (method == http.MethodGet || method == http.MethodHead)
}

const (
	// frameHeader is the length of the header of an HTTP/2 frame.
	frameHeader = 9
	// maxFirstBytes bounds what is read of a connection until its first request is known.
	maxFirstBytes = 2 * maxHeaders
	// hpackTable is the size of the table of header fields that a client may assume until it knows another.
	hpackTable = 4096
)

// checkedConn is a connection that speaks HTTP/2. It answers its first request itself if that is a health check, which
// grpc would refuse since it is no gRPC; clients such as curl ask by HTTP/2 if TLS offers it. Other requests pass as
// they are.
type checkedConn struct {
	net.Conn
	// held is what was read and not returned. Its first whole bytes are complete frames before the first request.
	held  []byte
	whole int
	// opened is true once the preface of the connection was counted.
	opened bool
	// known is true once the first request is.
	known bool
	// check is the first request if it is a health check.
	check *http2.MetaHeadersFrame
}

// Read returns whole frames until the first request is known, then everything that follows.
func (c *checkedConn) Read(b []byte) (int, error) {
	for !c.known && c.whole == 0 {
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	switch {
	case c.whole > 0:
		n := c.release(b, c.whole)
		c.whole -= n
		return n, nil
	case c.check != nil:
		return 0, c.answer()
	case len(c.held) > 0:
		return c.release(b, len(c.held)), nil
	}
	return c.Conn.Read(b)
}

// release returns up to most held bytes.
func (c *checkedConn) release(b []byte, most int) int {
	n := copy(b, c.held[:most])
	c.held = c.held[n:]
	return n
}

// fill reads more, and looks for the first request.
func (c *checkedConn) fill() error {
	more := make([]byte, maxHeaders)
	n, err := c.Conn.Read(more)
	c.held = append(c.held, more[:n]...)
	c.look()
	if c.known || c.whole > 0 {
		return nil // an error is returned again
	}
	return err
}

// look counts the frames before the first request, and decodes that once it is whole. What is no HTTP/2 is left to
// grpc.
func (c *checkedConn) look() {
	at := 0
	if !c.opened {
		if len(c.held) < len(http2.ClientPreface) {
			c.known = !strings.HasPrefix(http2.ClientPreface, string(c.held))
			return
		}
		at, c.opened = len(http2.ClientPreface), true
	}
	for ; len(c.held)-at >= frameHeader; at = c.whole {
		rest := c.held[at:]
		length := frameHeader + int(rest[0])<<16 + int(rest[1])<<8 + int(rest[2])
		if len(rest) < length {
			break
		}
		if http2.FrameType(rest[3]) == http2.FrameHeaders {
			c.known, c.check = true, healthCheck(rest[:length])
			break
		}
		c.whole = at + length
	}
	c.whole = at
	c.known = c.known || len(c.held)-at > maxFirstBytes
}

// healthCheck decodes the frame of a request. It returns nil if that is not a health check, or not in one frame.
func healthCheck(frame []byte) *http2.MetaHeadersFrame {
	framer := http2.NewFramer(nil, bytes.NewReader(frame))
	framer.ReadMetaHeaders = hpack.NewDecoder(hpackTable, nil)
	framer.MaxHeaderListSize = maxHeaders
	read, err := framer.ReadFrame()
	if err != nil {
		return nil
	}
	request, is := read.(*http2.MetaHeadersFrame)
	if !is || !isHealthCheck(request.PseudoValue("method"), request.PseudoValue("path")) {
		return nil
	}
	return request
}

// answer answers the health check, lets the client close the connection, and returns why nothing more is read. The
// request has changed the table of header fields, of which grpc knows nothing, so the connection serves no other.
func (c *checkedConn) answer() error {
	var header, frames bytes.Buffer
	framer := http2.NewFramer(&frames, nil)
	// The client reads first that it may send no second request here.
	err := errors.Join(
		framer.WriteGoAway(c.check.StreamID, http2.ErrCodeNo, nil),
		hpack.NewEncoder(&header).WriteField(hpack.HeaderField{Name: ":status", Value: "204"}))
	if err == nil {
		err = framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: c.check.StreamID, BlockFragment: header.Bytes(), EndHeaders: true, EndStream: true,
		})
	}
	if err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(handshakeTime)); err != nil {
		return err
	}
	if _, err := c.Write(frames.Bytes()); err != nil { // one call: grpc writes to the connection too
		return err
	}
	if _, err := io.CopyN(io.Discard, c.Conn, maxRefusedBody); err != nil {
		return err
	}
	return io.EOF
}

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
