package httpx

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
)

// Listener wraps the listener of a server, so that a request which net/http refuses before any handler sees it, since it
// cannot be read as HTTP, is answered as everything else is: by an envelope with a request id. Connections that are not TCP,
// as those of TLS are not, are left as they are.
func Listener(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		return conn{tcp}, nil
	}
	return c, err
}

// conn keeps what else a TCP connection can do, which net/http makes use of.
type conn struct{ *net.TCPConn }

func (c conn) Write(b []byte) (int, error) {
	refused, ok := refusalOf(b)
	if !ok {
		return c.TCPConn.Write(b)
	}
	if _, err := c.TCPConn.Write(refused); err != nil {
		return 0, err
	}
	return len(b), nil
}

// What net/http writes where it refuses a request by itself: one write of a status line, these headers, which no handler
// writes in this order and without a date, and a text.
var (
	refusalStart   = []byte("HTTP/1.1 ")
	refusalHeaders = []byte("Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
	// It answers an Expect header that it does not know through the handlers' way, but without asking one.
	expectationFailed = []byte("HTTP/1.1 417 ")
)

// refusals say what was wrong, by status.
var refusals = map[int]string{
	http.StatusBadRequest: "the request cannot be read as HTTP: its method, its path (where a % stands before two hexadecimal digits), " +
		"its headers or its Content-Length are wrong",
	http.StatusExpectationFailed:           "the Expect header asks for something else than 100-continue",
	http.StatusRequestHeaderFieldsTooLarge: fmt.Sprintf("path and headers have more than %d bytes", maxHeader),
	http.StatusNotImplemented:              "the Transfer-Encoding is not chunked",
	http.StatusHTTPVersionNotSupported:     "the version of HTTP is not 1.0 or 1.1",
}

// refusalOf is the answer that takes the place of what net/http is about to write, where that is a refusal of its own.
func refusalOf(b []byte) (answer []byte, ok bool) {
	if !bytes.HasPrefix(b, refusalStart) || len(b) < len(refusalStart)+3 {
		return nil, false
	}
	line, rest, _ := bytes.Cut(b, []byte("\r\n"))
	if !bytes.HasPrefix(rest, refusalHeaders) && !bytes.HasPrefix(b, expectationFailed) {
		return nil, false
	}
	status, err := strconv.Atoi(string(line[len(refusalStart):][:3]))
	if err != nil || status < 400 {
		return nil, false
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, false
	}
	message := refusals[status]
	if message == "" {
		message = "the request cannot be read as HTTP"
	}
	body, err := json.Marshal(Envelope{Code: fault.CodeInvalidRequest, Status: status, DebugMessage: message, Data: map[string]any{}})
	if err != nil {
		return nil, false
	}
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n%s: %s\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"+
		"Connection: close\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), HeaderRequestID, id, len(body), body), true
}
