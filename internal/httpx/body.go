package httpx

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/rawjson"
)

const (
	// SmallLimit is the most bytes of a body on a route whose fields are short.
	SmallLimit = 1 << 20
	// IngestLimit is the most bytes of a body that carries content: 16 MiB of it may be 96 MiB of escapes, and metadata comes on top.
	IngestLimit = 98 << 20

	bodiesKey = "annals.bodies"
	// bodyGrace and bodyRate say how long a body may take to arrive: the grace, and a second for each bodyRate bytes.
	bodyGrace = 10 * time.Second
	bodyRate  = 512 << 10
)

// Body reads the body of a request as one JSON value of at most limit bytes.
//
// The fault is invalid-request (empty, no JSON, no UTF-8, nested deeper than 10,000, more after the value, broken off),
// content-too-large, unsupported-media-type, timeout, or service-unavailable when too many bodies are in flight.
func Body(c echo.Context, limit int64) ([]byte, error) {
	req := c.Request()
	if req.ContentLength > limit {
		return nil, tooLarge(limit).With("bytes", req.ContentLength)
	}
	if req.ContentLength > 0 {
		if err := checkMediaType(req.Header); err != nil {
			return nil, err
		}
	}
	raw, err := read(c, limit)
	if err != nil {
		return nil, err
	}
	if len(raw) == 0 {
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "the body is empty: want a JSON value")
	}
	if err := checkMediaType(req.Header); err != nil {
		return nil, err
	}
	if err := rawjson.Check(raw); err != nil {
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "the body is not one JSON value in UTF-8: %v", err)
	}
	return raw, nil
}

// read takes the whole body into memory, once the allowance for it is there. The allowance goes back when the response is written.
func read(c echo.Context, limit int64) ([]byte, error) {
	req, state := c.Request(), stateOf(c)
	if req.ContentLength == 0 {
		return nil, nil
	}
	bodies, ok := c.Get(bodiesKey).(*Bodies)
	if !ok {
		return nil, errors.New("the request did not come through the edge")
	}
	controller := http.NewResponseController(c.Response())
	if err := controller.SetReadDeadline(time.Now().Add(arrival(req))); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	raw, release, err := readSized(c, bodies, limit)
	if err != nil {
		return nil, err
	}
	state.release = release
	// Without this the watch for a client that goes away would end the request at the deadline of its body.
	if err := controller.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	return raw, nil
}

func readSized(c echo.Context, bodies *Bodies, limit int64) (raw []byte, release func(), err error) {
	req := c.Request()
	if req.ContentLength >= 0 {
		if release, err = bodies.take(req.Context(), req.ContentLength); err != nil {
			return nil, nil, err
		}
		raw = make([]byte, req.ContentLength)
		if _, err = io.ReadFull(req.Body, raw); err != nil {
			release()
			return nil, nil, unread(err)
		}
		return raw, release, nil
	}
	// Of unknown length: a small body is read under the share of the small, and only what is longer takes what the route allows.
	if release, err = bodies.take(req.Context(), SmallBody); err != nil {
		return nil, nil, err
	}
	head, err := io.ReadAll(io.LimitReader(req.Body, min(SmallBody, limit)+1))
	switch {
	case err != nil:
		release()
		return nil, nil, unread(err)
	case int64(len(head)) > limit:
		release()
		return nil, nil, tooLarge(limit)
	case len(head) <= SmallBody:
		return head, release, nil
	}
	releaseBig, err := bodies.take(req.Context(), limit)
	release()
	if err != nil {
		return nil, nil, err
	}
	var all bytes.Buffer
	all.Write(head)
	if _, err := all.ReadFrom(io.LimitReader(req.Body, limit-int64(len(head))+1)); err != nil {
		releaseBig()
		return nil, nil, unread(err)
	}
	if int64(all.Len()) > limit {
		releaseBig()
		return nil, nil, tooLarge(limit)
	}
	return all.Bytes(), releaseBig, nil
}

// arrival is how long the body of a request may take to arrive.
func arrival(req *http.Request) time.Duration {
	size := req.ContentLength
	switch {
	case size == 0:
		return 0
	case size < 0, size > IngestLimit:
		size = IngestLimit
	}
	return bodyGrace + time.Duration(size)*time.Second/bodyRate
}

func unread(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fault.New(fault.Timeout, fault.CodeTimeout, "the body did not arrive in time")
	}
	return fault.New(fault.Invalid, fault.CodeInvalidRequest, "the body broke off: %v", err)
}

func tooLarge(limit int64) *fault.Error {
	return fault.New(fault.TooLarge, fault.CodeContentTooLarge, "the body has more than %d bytes", limit).With("limitBytes", limit)
}

// checkMediaType refuses a Content-Type that is there and is not JSON, and a body that is packed. None at all is JSON.
func checkMediaType(header http.Header) error {
	if packed := header.Get(echo.HeaderContentEncoding); packed != "" && !strings.EqualFold(packed, "identity") {
		return fault.New(fault.UnsupportedMedia, fault.CodeUnsupportedMediaType, "the Content-Encoding is %q: want none", packed)
	}
	sent := header.Get(echo.HeaderContentType)
	if sent == "" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(sent)
	if err == nil && (kind == echo.MIMEApplicationJSON || kind == "text/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")) {
		return nil
	}
	return fault.New(fault.UnsupportedMedia, fault.CodeUnsupportedMediaType, "the Content-Type is %q: want application/json", sent)
}
