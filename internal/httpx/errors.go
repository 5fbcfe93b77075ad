package httpx

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

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
	body, err := encode(Envelope{Code: f.Code, Status: status, DebugMessage: f.Msg, Data: data})
	body = append(body, '\n')
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
