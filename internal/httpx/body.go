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
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/fields"
)

const (
	// SmallLimit is the most bytes of a body on a route whose fields are short.
	SmallLimit = 1 << 20
	// IngestLimit is the most bytes of a body that carries content: 16 MiB of it may be 96 MiB of
	// escapes, and metadata comes on top.
	IngestLimit = 98 << 20
)

// Body reads the body of a request as one JSON value of at most limit bytes, without a byte order mark before it.
//
// The fault is invalid-request (empty, not JSON, not UTF-8, half a surrogate pair, nested deeper
// than 10,000, more after the value, truncated), content-too-large, unsupported-media-type,
// timeout, or service-unavailable if too many bodies are in flight.
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
	raw, held, err := read(c, limit)
	if err != nil {
		return nil, err
	}
	if err := stateOf(c).logged.copyRequest(req.Context(), raw); err != nil {
		return nil, err
	}
	raw = bytes.TrimPrefix(raw, []byte("\ufeff"))
	if len(raw) == 0 {
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "the body is empty: want a JSON value")
	}
	if err := checkMediaType(req.Header); err != nil {
		return nil, err
	}
	if err := rawjson.Check(raw); err != nil {
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "the body is not one JSON value in UTF-8: %v", err)
	}
	values, err := rawjson.Scan(raw)
	if err != nil {
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "the body is not one JSON value in UTF-8: %v", err)
	}
	return raw, held.weigh(c.Request().Context(), len(raw), values)
}

// Decode reads the body of a request, an object of at most limit bytes, into a value. The faults are those of Body and
// of fields.Decode. With a fault of the latter comes what could be read.
func Decode[T any](
	c echo.Context, limit int64, names fields.Names, read func(fields.Object) (T, error),
) (v T, err error) {
	body, err := Body(c, limit)
	if err != nil {
		return v, err
	}
	return fields.Decode(body, "", names, read)
}

// RawBody reads the body of a request of any media type, at most limit bytes. tooLong is the fault of a
// longer one.
//
// The other faults are unsupported-media-type for an encoded body, invalid-request for a truncated one,
// timeout, and service-unavailable if too many bodies are in flight.
func RawBody(c echo.Context, limit int64, tooLong error) ([]byte, error) {
	req := c.Request()
	if req.ContentLength > limit {
		return nil, tooLong
	}
	if err := checkEncoding(req.Header); err != nil {
		return nil, err
	}
	raw, _, err := read(c, limit)
	if f, is := errors.AsType[*fault.Error](err); is && f.Code == fault.CodeContentTooLarge {
		return nil, tooLong
	}
	if err != nil {
		return nil, err
	}
	return raw, stateOf(c).logged.copyRequest(req.Context(), raw)
}

// weigh reserves the memory of a decoded body: many small values need a multiple of their text.
func (h hold) weigh(ctx context.Context, length, values int) error {
	weight := int64(length) + int64(values)*valueBytes
	if length <= FreeBody && weight <= 4*FreeBody {
		return nil
	}
	return h.bytes.Reserve(ctx, weight-h.bytes.Held())
}

// read reads the whole body, and reserves memory for it as it arrives. The memory is returned when
// the response is written. From then on the request has the time of one without a body.
func read(c echo.Context, limit int64) ([]byte, hold, error) {
	req, state := c.Request(), stateOf(c)
	if req.ContentLength == 0 {
		return nil, hold{}, nil
	}
	if !state.row.Body {
		return nil, hold{}, errors.New("the row of the route in package admission has no body")
	}
	r := bodyReader{
		ctx: req.Context(), body: req.Body, hold: state.bodies.open(state.owner()), long: state.bodies.long,
		controller: http.NewResponseController(c.Response()), started: time.Now(),
	}
	raw, err := r.read(req.ContentLength, limit)
	if err != nil {
		r.hold.release()
		return nil, hold{}, err
	}
	state.arriving.Store(false)
	ctx, cancel := context.WithTimeout(req.Context(), state.timeout)
	c.SetRequest(req.WithContext(ctx))
	state.release = func() { cancel(); r.hold.release() }
	// Without this, the watch for a disconnected client would end the request at the deadline of its
	// body.
	return raw, r.hold, r.deadline(time.Time{})
}

// bodyReader reads one body.
type bodyReader struct {
	ctx        context.Context
	body       io.Reader
	hold       hold
	controller *http.ResponseController
	started    time.Time
	// reserved is the size of the buffer, 0 for one that needs no reservation.
	reserved int64
	// waited is how long the body waited for memory. That time does not count as the client's.
	waited time.Duration
	// long are the slots of long bodies. A body that has one is measured since it had markBytes, at markAt.
	long      *allowance.Allowance
	markBytes int
	markAt    time.Time
}

// read reads a body of a length, or one of unknown length (-1) up to a limit. The buffer grows
// with the bytes that arrived, not with the announced length.
func (r *bodyReader) read(length, limit int64) ([]byte, error) {
	end := length
	if length < 0 {
		end = limit + 1 // one byte more shows that the body is too long
	}
	raw := make([]byte, 0, min(end, FreeBody))
	for int64(len(raw)) < end {
		if len(raw) == cap(raw) {
			grown, err := r.grow(raw, end)
			if err != nil {
				return nil, err
			}
			raw = grown
		}
		if err := r.deadline(r.due(len(raw))); err != nil {
			return nil, err
		}
		n, err := r.readSome(raw[len(raw):min(cap(raw), len(raw)+readStep)])
		raw = raw[:len(raw)+n]
		if errors.Is(err, io.EOF) && (length < 0 || int64(len(raw)) == length) {
			break
		}
		if err != nil {
			return nil, unread(err)
		}
	}
	if int64(len(raw)) > limit {
		return nil, tooLarge(limit)
	}
	return raw, nil
}

// readSome reads what has arrived. Room that the body has while it waits for more can be taken by others.
func (r *bodyReader) readSome(b []byte) (n int, err error) {
	if r.reserved == 0 {
		return r.body.Read(b)
	}
	r.hold.await(func() { _ = r.deadline(time.Unix(0, 0)) }) // the read ends
	n, err = r.body.Read(b)
	if !r.hold.moved(n) {
		return n, os.ErrDeadlineExceeded
	}
	return n, err
}

// readStep is the most bytes that are read before the deadline of a body is set again.
const readStep = 64 << 10

// grow reserves room for twice the buffer, and copies it.
func (r *bodyReader) grow(raw []byte, end int64) ([]byte, error) {
	size := min(2*int64(cap(raw)), end)
	began := time.Now()
	if err := r.hold.upTo(r.ctx, size); err != nil {
		return nil, err
	}
	r.waited += time.Since(began)
	r.reserved = size
	if size > longBody && r.markAt.IsZero() {
		r.markBytes, r.markAt = len(raw), time.Now()
	} else if !r.markAt.IsZero() {
		r.markAt = r.markAt.Add(time.Since(began))
	}
	grown := make([]byte, len(raw), size)
	copy(grown, raw)
	return grown, nil
}

// due is when the byte after the first n must have arrived.
func (r *bodyReader) due(n int) time.Time {
	rated := bodyGrace + time.Duration(n)*time.Second/leastRate
	at := r.started.Add(r.waited + min(rated, bodyTime))
	if r.markAt.IsZero() {
		return at
	}
	rate := longRate
	if r.long.Waiting() > 0 {
		rate = wantedRate
	}
	if n-r.markBytes >= rate*int(longWindow/time.Second) {
		r.markBytes, r.markAt = n, time.Now()
	}
	if window := r.markAt.Add(longWindow); window.Before(at) {
		return window
	}
	return at
}

func (r *bodyReader) deadline(at time.Time) error {
	if err := r.controller.SetReadDeadline(at); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("set the deadline of a body: %w", err)
	}
	return nil
}

func unread(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fault.New(fault.SlowBody, fault.CodeTimeout, "the body did not arrive in time")
	}
	return fault.New(fault.Invalid, fault.CodeInvalidRequest, "the request body is truncated: %v", err)
}

// TooLarge is the fault of a body with more than limit bytes.
func TooLarge(limit int64) *fault.Error { return tooLarge(limit) }

func tooLarge(limit int64) *fault.Error {
	return fault.New(fault.TooLarge, fault.CodeContentTooLarge, "the body has more than %d bytes", limit).
		With("limitBytes", limit)
}

// checkEncoding refuses an encoded body.
func checkEncoding(header http.Header) error {
	if packed := header.Get(echo.HeaderContentEncoding); packed != "" && !strings.EqualFold(packed, "identity") {
		return fault.New(fault.UnsupportedMedia, fault.CodeUnsupportedMediaType,
			"the Content-Encoding is %.100q: want none", packed)
	}
	return nil
}

// checkMediaType refuses a Content-Type other than JSON, a charset other than UTF-8, and an encoded body. Without a
// Content-Type the body counts as JSON.
func checkMediaType(header http.Header) error {
	if err := checkEncoding(header); err != nil {
		return err
	}
	sent := header.Get(echo.HeaderContentType)
	if sent == "" {
		return nil
	}
	kind, params, err := mime.ParseMediaType(sent)
	vendor := strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
	if err == nil && (kind == echo.MIMEApplicationJSON || kind == "text/json" || vendor) {
		switch name := params["charset"]; strings.ToLower(name) {
		case "", "utf-8", "utf8", "us-ascii", "ascii": // ASCII is part of UTF-8
			return nil
		default:
			return fault.New(fault.UnsupportedMedia, fault.CodeUnsupportedMediaType,
				"the Content-Type names the charset %.100q: JSON is sent in UTF-8", name)
		}
	}
	return fault.New(fault.UnsupportedMedia, fault.CodeUnsupportedMediaType,
		"the Content-Type is %.100q: want application/json", sent)
}

const (
	// FreeBody is the size up to which bodies are read without a reservation.
	FreeBody = 16 << 10
	// longBody is the size above which a body takes a slot of admission.LongBodies.
	longBody = 16 << 20
	// valueBytes is the memory of one decoded JSON value, without its text.
	valueBytes = 64

	// bodyGrace and leastRate bound how slowly a body may arrive: at least leastRate bytes a second
	// on average, after bodyGrace. The same applies to how fast a client must read a response.
	bodyGrace = 10 * time.Second
	leastRate = 16 << 10
	// bodyTime is the longest time in which a body may arrive.
	bodyTime = 5 * time.Minute
	// A body with a slot keeps it while longRate bytes a second arrive in any longWindow, and wantedRate
	// while another body waits for a slot.
	longRate   = 256 << 10
	wantedRate = 1 << 20
	longWindow = 10 * time.Second
)

// Bodies is the allowance of bytes of request bodies in flight.
type Bodies struct {
	bytes, long, longest *allowance.Allowance
	wait                 time.Duration
}

// NewBodies makes an allowance of bytes, with those of admission.LongBodies and admission.LongestBodies.
func NewBodies(bytes admission.Resource) *Bodies {
	long, longest := admission.LongBodies, admission.LongestBodies
	return &Bodies{
		bytes: bytes.New(), long: long.New(), longest: longest.New(), wait: bytes.Wait + long.Wait + longest.Wait,
	}
}

// InFlight returns how many bytes are reserved.
func (b *Bodies) InFlight() int64 { return b.bytes.InUse() }

// timeOf is how long the body of a request may take to arrive, before it is known which route it
// is for.
func (b *Bodies) timeOf(req *http.Request) time.Duration {
	if req.ContentLength == 0 {
		return 0
	}
	return bodyTime + 2*b.wait
}

// hold is the reservation of one body.
type hold struct {
	bytes, long, longest *allowance.Hold
}

func (b *Bodies) open(o allowance.Owner) hold {
	return hold{b.bytes.Open(o), b.long.Open(o), b.longest.Open(o)}
}

// upTo raises the reservation to n bytes.
func (h hold) upTo(ctx context.Context, n int64) error {
	if n > longBody {
		if err := h.long.Reserve(ctx, 1); err != nil {
			return err
		}
	}
	if n > IngestLimit+1 { // a body of unknown length has room for the byte beyond its limit
		if err := h.longest.Reserve(ctx, 1); err != nil {
			return err
		}
	}
	return h.bytes.Reserve(ctx, n-h.bytes.Held())
}

// await reports that the body waits for its peer, until moved: see allowance.Hold.
func (h hold) await(revoke func()) {
	h.longest.Await(revoke)
	h.bytes.Await(revoke)
	h.long.Await(revoke)
}

// moved reports that n bytes arrived. It returns false if others took the room of the body.
func (h hold) moved(n int) bool {
	longest, bytes, long := h.longest.Moved(n), h.bytes.Moved(n), h.long.Moved(n)
	return longest && bytes && long
}

func (h hold) release() {
	h.longest.Release()
	h.bytes.Release()
	h.long.Release()
}

// Arriving is the body of a request to a page while it arrives, at the rate that bodies of the API must have. What has
// arrived is reserved, but for the first bytes: a silent peer holds nothing. Its errors are faults.
type Arriving struct {
	ctx    context.Context //nolint:containedctx // of the one request
	body   io.Reader
	hold   *allowance.Hold
	paced  bodyReader
	read   int64
	free   int64
	failed error
}

// NewArriving returns the body of a request, at most limit bytes, whose bytes beyond free are reserved in a hold.
func NewArriving(
	ctx context.Context, w http.ResponseWriter, body io.ReadCloser, limit int64, hold *allowance.Hold, free int64,
) *Arriving {
	return &Arriving{
		ctx: ctx, body: http.MaxBytesReader(nil, body, limit), hold: hold, free: free,
		paced: bodyReader{controller: http.NewResponseController(w), started: time.Now()},
	}
}

// Reserve has the bytes that were read, and those to come, reserved in another hold instead.
func (a *Arriving) Reserve(hold *allowance.Hold) error {
	a.hold.Release()
	a.hold, a.free = hold, 0
	return a.reserve()
}

// Read implements io.Reader.
func (a *Arriving) Read(p []byte) (n int, err error) {
	if a.failed != nil {
		return 0, a.failed
	}
	defer func() {
		if err != nil {
			a.failed = err
		}
	}()
	if err := a.paced.deadline(a.paced.due(int(a.read))); err != nil {
		return 0, err
	}
	a.hold.Await(func() { _ = a.paced.deadline(time.Unix(0, 0)) }) // the read ends
	n, err = a.body.Read(p[:min(len(p), readStep)])
	if !a.hold.Moved(n) {
		return 0, unread(os.ErrDeadlineExceeded)
	}
	a.read += int64(n)
	if full := a.reserve(); full != nil {
		return 0, full
	}
	if large, is := errors.AsType[*http.MaxBytesError](err); is {
		return n, tooLarge(large.Limit)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return n, unread(err)
	}
	return n, err
}

func (a *Arriving) reserve() error {
	began := time.Now()
	err := a.hold.Reserve(a.ctx, a.read-a.free-a.hold.Held())
	a.paced.waited += time.Since(began)
	return err
}

// End ends the reading: from now on a client that leaves is noticed, and no deadline of the body holds.
func (a *Arriving) End() error { return a.paced.deadline(time.Time{}) }

// HangUp returns a function that ends the answer to a request at once, also one that the client does not read.
func HangUp(w http.ResponseWriter, r *http.Request) func() {
	if counted := connectionOf(r); counted != nil {
		return func() { _ = counted.Conn.Close() } // its server notices
	}
	controller := http.NewResponseController(w)
	return func() { _ = controller.SetWriteDeadline(time.Unix(0, 0)) }
}
