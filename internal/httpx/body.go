package httpx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
// From then on the request has the time that one without a body has.
func read(c echo.Context, limit int64) ([]byte, error) {
	req, state := c.Request(), stateOf(c)
	if req.ContentLength == 0 {
		return nil, nil
	}
	if state.bodies == nil {
		return nil, errors.New("the request did not come through the edge")
	}
	r := bodyReader{
		ctx: req.Context(), body: req.Body, bodies: state.bodies, controller: http.NewResponseController(c.Response()),
		release: func() {},
	}
	raw, err := r.read(req.ContentLength, limit)
	if err != nil {
		r.release()
		return nil, err
	}
	ctx, cancel := context.WithTimeout(req.Context(), state.timeout)
	c.SetRequest(req.WithContext(ctx))
	state.release = func() { cancel(); r.release() }
	// Without this the watch for a client that goes away would end the request at the deadline of its body.
	return raw, r.deadline(time.Time{})
}

// bodyReader reads one body. Release gives back what it holds of the allowance.
type bodyReader struct {
	ctx        context.Context
	body       io.Reader
	bodies     *Bodies
	controller *http.ResponseController
	release    func()
}

func (r *bodyReader) read(length, limit int64) ([]byte, error) {
	if length > 0 {
		return r.all(length)
	}
	return r.chunks(limit)
}

// all reads a body of known length.
func (r *bodyReader) all(length int64) ([]byte, error) {
	if err := r.take(length); err != nil {
		return nil, err
	}
	raw := make([]byte, length)
	if _, err := io.ReadFull(r.body, raw); err != nil {
		return nil, unread(err)
	}
	return raw, nil
}

// chunks reads a body of unknown length: under the share and in the time of a small one, and only if it is longer under what the route allows.
func (r *bodyReader) chunks(limit int64) ([]byte, error) {
	if err := r.take(SmallBody); err != nil {
		return nil, err
	}
	var raw bytes.Buffer
	small := min(SmallBody, limit)
	if _, err := raw.ReadFrom(io.LimitReader(r.body, small+1)); err != nil {
		return nil, unread(err)
	}
	if int64(raw.Len()) > small && small < limit {
		releaseSmall := r.release
		err := r.take(limit)
		releaseSmall()
		if err != nil {
			r.release = func() {}
			return nil, err
		}
		if _, err := raw.ReadFrom(io.LimitReader(r.body, limit-int64(raw.Len())+1)); err != nil {
			return nil, unread(err)
		}
	}
	if int64(raw.Len()) > limit {
		return nil, tooLarge(limit)
	}
	return raw.Bytes(), nil
}

// take waits for the allowance of n bytes and gives them their time to arrive.
func (r *bodyReader) take(n int64) error {
	release, err := r.bodies.take(r.ctx, n)
	if err != nil {
		return err
	}
	r.release = release
	return r.deadline(time.Now().Add(r.bodies.arrival(n)))
}

func (r *bodyReader) deadline(at time.Time) error {
	if err := r.controller.SetReadDeadline(at); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("set the deadline of a body: %w", err)
	}
	return nil
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
		return fault.New(fault.UnsupportedMedia, fault.CodeUnsupportedMediaType, "the Content-Encoding is %.100q: want none", packed)
	}
	sent := header.Get(echo.HeaderContentType)
	if sent == "" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(sent)
	if err == nil && (kind == echo.MIMEApplicationJSON || kind == "text/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")) {
		return nil
	}
	return fault.New(fault.UnsupportedMedia, fault.CodeUnsupportedMediaType, "the Content-Type is %.100q: want application/json", sent)
}
