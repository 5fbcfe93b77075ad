package httpx

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
)

// Envelope is the body of every error.
type Envelope struct {
	Code         string         `json:"code"`
	Status       int            `json:"status"`
	DebugMessage string         `json:"debugMessage"`
	Data         map[string]any `json:"data"`
}

// statuses maps kinds of faults to HTTP.
var statuses = map[fault.Kind]int{
	fault.Internal:         http.StatusInternalServerError,
	fault.Invalid:          http.StatusBadRequest,
	fault.Unauthenticated:  http.StatusUnauthorized,
	fault.PaymentRequired:  http.StatusPaymentRequired,
	fault.Forbidden:        http.StatusForbidden,
	fault.NotFound:         http.StatusNotFound,
	fault.MethodNotAllowed: http.StatusMethodNotAllowed,
	fault.Conflict:         http.StatusConflict,
	fault.TooLarge:         http.StatusRequestEntityTooLarge,
	fault.UnsupportedMedia: http.StatusUnsupportedMediaType,
	fault.LimitReached:     http.StatusTooManyRequests,
	fault.Unavailable:      http.StatusServiceUnavailable,
	fault.Timeout:          http.StatusServiceUnavailable,
	fault.SlowBody:         http.StatusRequestTimeout,
}

// Status is the status of a kind of fault.
func Status(kind fault.Kind) int { return statuses[kind] }

// retryAfter returns how many seconds the client should wait before it sends the request again, ""
// if waiting does not help. Every fault of the kind Unavailable is a 503 for load, and has it.
func retryAfter(f *fault.Error) string {
	switch {
	case statuses[f.Kind] != http.StatusServiceUnavailable, f.Code == fault.CodePipelineDisabled:
		return ""
	case f.Code == fault.CodeOrganizationNotReady, f.Kind == fault.Timeout:
		return "5"
	default:
		return "2"
	}
}

// errorWriter is the one place that turns an error into a response.
type errorWriter struct {
	urls auth.URLs
	log  *slog.Logger
}

func (w errorWriter) write(err error, c echo.Context) {
	ctx, state := c.Request().Context(), stateOf(c)
	if limited, ok := errors.AsType[rateError](err); ok && !c.Response().Committed {
		if err := limited.write(c, state); err != nil {
			w.log.WarnContext(ctx, "response aborted", "requestId", state.id, "route", c.Path(), "err", err)
		}
		return
	}
	f := faultOf(err, c)
	state.code = f.Code
	if state.inner != nil {
		state.inner.refusal = f
	}
	switch {
	case c.Response().Committed:
		w.log.WarnContext(ctx, "response aborted", "requestId", state.id, "route", c.Path(), "err", err)
		return
	case errors.Is(err, errPanic), errors.Is(err, context.Canceled):
		// A panic is logged where it is caught, and a disconnected client is not an error of the
		// service.
	case f.Kind == fault.Unavailable && !state.api:
		// An operator's probe before the service is ready.
	case f.Kind == fault.Unavailable:
		state.refused = err // logged with the request
	case f.Kind == fault.Internal:
		w.log.ErrorContext(ctx, "request failed", "requestId", state.id, "route", c.Path(), "err", err)
	}
	header := c.Response().Header()
	if seconds := retryAfter(f); seconds != "" {
		header.Set(echo.HeaderRetryAfter, seconds)
	}
	if f.Kind == fault.Unauthenticated && state.api {
		header.Set(echo.HeaderWWWAuthenticate, auth.Challenge(w.urls, state.invalidToken))
	}
	if f.Code == fault.CodeInsufficientScope && state.api {
		header.Set(echo.HeaderWWWAuthenticate, auth.ScopeChallenge(w.urls, state.route.Agent))
	}
	if allow, ok := c.Get(echo.ContextKeyHeaderAllow).(string); ok && f.Kind == fault.MethodNotAllowed {
		header.Set(echo.HeaderAllow, allowed(allow))
	}
	status := statuses[f.Kind]
	data := f.Data
	if data == nil {
		data = map[string]any{}
	}
	contentType := echo.MIMEApplicationJSON
	whole := newStreamWriter()
	err = whole.encode(Envelope{Code: f.Code, Status: status, DebugMessage: f.Msg, Data: data})
	body := append(whole.due.Bytes(), '\n')
	if state.page {
		contentType = echo.MIMETextHTMLCharsetUTF8
		body, err = Home{Title: http.StatusText(status), Text: f.Msg + " (request " + state.id.String() + ")"}.html()
	}
	if err == nil {
		// With its length the answer is whole before the rest of the body of the request is read.
		header.Set(echo.HeaderContentLength, strconv.Itoa(len(body)))
		err = c.Blob(status, contentType, body)
	}
	if err != nil {
		w.log.WarnContext(ctx, "response aborted", "requestId", state.id, "route", c.Path(), "err", err)
	}
}

// faultOf returns the fault that the response to an error of a call shows.
func faultOf(err error, c echo.Context) *fault.Error {
	if h, ok := errors.AsType[*echo.HTTPError](err); ok {
		switch h.Code {
		case http.StatusNotFound:
			// Do not repeat the path: it may contain the token of a webhook.
			return fault.New(fault.NotFound, fault.CodeNotFound, "nothing is served at this path")
		case http.StatusMethodNotAllowed:
			allow, _ := c.Get(echo.ContextKeyHeaderAllow).(string)
			return fault.New(fault.MethodNotAllowed, fault.CodeMethodNotAllowed,
				"%s is not a method of this route: it has %s", c.Request().Method, allowed(allow))
		}
	}
	return Fault(err)
}

// Fault returns the fault that a person or a client sees of an error. An unknown error becomes an internal fault
// without its text; that of an event store that cannot be reached is service-unavailable.
func Fault(err error) *fault.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if errors.Is(err, eventstore.ErrUnavailable) {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the event store cannot be reached; retry")
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fault.New(fault.Timeout, fault.CodeTimeout,
			"the request did not finish in time; whether it took effect is not known")
	}
	return fault.New(fault.Internal, fault.CodeInternal, "the request failed; quote its X-Request-Id to support")
}

// allowed returns the Allow header without OPTIONS, which the router adds but no route serves.
func allowed(router string) string {
	methods := strings.Split(router, ", ")
	return strings.Join(slices.DeleteFunc(methods, func(m string) bool { return m == http.MethodOptions }), ", ")
}

// isAPI reports whether the request is for a path under /api/v1, known or not.
func isAPI(c echo.Context) bool {
	return slices.ContainsFunc([]string{c.Request().URL.Path, c.Path()}, func(p string) bool {
		return p == auth.Prefix || strings.HasPrefix(p, auth.Prefix+"/")
	})
}

// Stream responds 200 with an object that contains one long list, which it encodes item by item.
// shell is the object with that list empty, but not nil; name is the JSON name of the list.
func Stream[T any](c echo.Context, shell any, name string, items []T) error {
	return StreamSeq(c, shell, name, func(yield func(*T, error) bool) {
		for i := range items { // of a pointer, what encodes itself is not copied
			if !yield(&items[i], nil) {
				return
			}
		}
	})
}

// StreamSeq is Stream of items that are read while they are written. If the first item is an
// error, nothing is written. A later error aborts the response.
func StreamSeq[T any](c echo.Context, shell any, name string, items iter.Seq2[T, error]) error {
	return StreamLists(c, shell, ListOf(name, items))
}

// List is a list of an answer that is encoded item by item.
type List struct {
	name  string
	items iter.Seq2[any, error]
}

// ListOf returns the list with a JSON name.
func ListOf[T any](name string, items iter.Seq2[T, error]) List {
	return List{name, func(yield func(any, error) bool) {
		for item, err := range items {
			if !yield(item, err) {
				return
			}
		}
	}}
}

// StreamLists is StreamSeq of several lists, in the order of the shell. Nothing is written if the first item of
// all is an error.
func StreamLists(c echo.Context, shell any, lists ...List) error {
	w := streamWriters.Get().(*streamWriter)
	defer w.release()
	w.c = c
	if err := w.encode(shell); err != nil {
		return err
	}
	rest := bytes.Clone(w.due.Bytes())
	w.due.Reset()
	for _, list := range lists {
		// Quotes within a string are escaped, so the first match is the member.
		before, after, ok := bytes.Cut(rest, []byte(`"`+list.name+`":[]`))
		if !ok {
			return fmt.Errorf("the answer has no empty list %s", list.name)
		}
		rest = after
		w.due.Write(before)
		w.due.WriteString(`"` + list.name + `":[`)
		first := true
		for item, err := range list.items {
			if err != nil {
				return err
			}
			if !first {
				w.due.WriteByte(',')
			}
			first = false
			if err := w.encode(item); err != nil {
				return err
			}
			if w.due.Len() >= streamStep {
				if err := w.write(); err != nil {
					return err
				}
			}
		}
		w.due.WriteByte(']')
	}
	w.due.Write(append(rest, '\n'))
	return w.write()
}

const (
	// streamStep is from how many bytes on a part of an answer is written.
	streamStep = 16 << 10
	// pooledParts is the most memory for parts that is used again: a long item gives its own up.
	pooledParts = 4 * streamStep
)

// streamWriters keeps the memory of parts for later answers.
var streamWriters = sync.Pool{New: func() any { return newStreamWriter() }}

// streamWriter collects a response as serializer writes it, and begins it with its first part.
type streamWriter struct {
	c       echo.Context
	due     bytes.Buffer
	encoder *json.Encoder
}

func newStreamWriter() *streamWriter {
	w := new(streamWriter)
	w.encoder = json.NewEncoder(&w.due)
	w.encoder.SetEscapeHTML(false)
	return w
}

func (w *streamWriter) release() {
	w.c = nil
	if w.due.Reset(); w.due.Cap() <= pooledParts {
		streamWriters.Put(w)
	}
}

// encode adds the JSON of a value to what is due.
func (w *streamWriter) encode(v any) error {
	if err := w.encoder.Encode(v); err != nil {
		return fmt.Errorf("encode the response: %w", err)
	}
	w.due.Truncate(w.due.Len() - len("\n"))
	return nil
}

// write writes what is due.
func (w *streamWriter) write() error {
	if err := store(w.c); err != nil {
		return err
	}
	res := w.c.Response()
	if !res.Committed {
		res.Header().Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
		res.WriteHeader(http.StatusOK)
	}
	if _, err := w.due.WriteTo(res); err != nil {
		return fmt.Errorf("write the response: %w", err)
	}
	return nil
}

const (
	// writeStep is the most bytes that are written before the deadline of an answer is set again.
	writeStep = 64 << 10
	// answerTime is the longest time that a client may take to read a response.
	answerTime = 5 * time.Minute
)

// pacedWriter writes a response, and aborts it if the peer reads less than leastRate on average
// after bodyGrace. Only the time of the writes counts, not the time that the handler needs.
type pacedWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
	written    int64
	spent      time.Duration
}

func newPacedWriter(w http.ResponseWriter) *pacedWriter {
	return &pacedWriter{ResponseWriter: w, controller: http.NewResponseController(w)}
}

// Unwrap is for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements io.Writer.
func (w *pacedWriter) Write(b []byte) (n int, err error) {
	for {
		step := b[n:min(len(b), n+writeStep)]
		began := time.Now()
		allowed := min(bodyGrace+time.Duration(w.written+int64(len(step)))*time.Second/leastRate, answerTime)
		err := w.controller.SetWriteDeadline(began.Add(allowed - w.spent))
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			return n, fmt.Errorf("set the deadline of an answer: %w", err)
		}
		m, err := w.ResponseWriter.Write(step)
		w.spent += time.Since(began)
		w.written += int64(m)
		n += m
		if err != nil || n == len(b) {
			return n, err
		}
	}
}
