package httpx

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
)

const (
	// drainBytes and drainTime bound what is read of a body after its call was answered, and thrown away. Many
	// clients write the whole body before they read: if the connection were closed, they would see it broken
	// instead of the answer.
	drainBytes = 256 << 20
	drainTime  = 10 * time.Second
)

// watchedBody is the body of a request. It notices whether all of it was read. While a read waits, the connection
// counts as one without a request, so that a peer that is silent makes place for others.
type watchedBody struct {
	io.ReadCloser
	connection *connection
	// expected is true until the service asks for a body that the client keeps back until then.
	expected, ended bool
}

// watchBody returns the body of a request that may have one, else nil.
func watchBody(c echo.Context) *watchedBody {
	req := c.Request()
	if req.ContentLength == 0 {
		return nil
	}
	b := &watchedBody{ReadCloser: req.Body, connection: connectionOf(req), expected: req.Header.Get("Expect") != ""}
	// A copy of the request, since net/http looks at the body of its own one when it writes the answer.
	watched := req.WithContext(req.Context())
	watched.Body = b
	c.SetRequest(watched)
	return b
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	b.expected = false
	b.connection.serving(false)
	defer b.connection.serving(true)
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || errors.Is(err, io.EOF)
	return n, err
}

// drain sends the answer, and reads what is left of the body. Meanwhile the connection counts as one without a
// request, so that it makes place for others. An answer without a length would end only afterwards: it is not for a
// client that still writes.
func (b *watchedBody) drain(c echo.Context) {
	if b == nil || b.ended || b.expected || c.Response().Header().Get(echo.HeaderContentLength) == "" {
		return
	}
	controller := http.NewResponseController(c.Response())
	if controller.Flush() != nil || controller.SetReadDeadline(time.Now().Add(drainTime)) != nil {
		return
	}
	releaseConnection(c)
	_, _ = io.CopyN(io.Discard, b.ReadCloser, drainBytes) // the client is gone or too slow: the connection ends
}
