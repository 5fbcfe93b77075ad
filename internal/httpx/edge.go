package httpx

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/internal/auth"
)

// edge is the outermost middleware. It gives the request its id, time and deadline, turns every
// result into one response, and records it once in the log and in the metrics.
type edge struct {
	cfg    Config
	routes auth.Table
}

func (e edge) serve(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		holdConnection(c)
		started := e.cfg.Now()
		id, err := newRequestID(started)
		if err != nil {
			return err
		}
		state := &request{
			id:         id,
			receivedAt: instant.Truncate(started),
			timeout:    e.cfg.Timeout,
			bodies:     e.cfg.Bodies,
			release:    func() {},
			api:        isAPI(c),
			route:      e.routes.Find(c.Request().Method, template(c)),
		}
		if state.inner = innerOf(c.Request()); state.inner != nil {
			state.inner.id = id
		}
		c.Set(requestKey, state)
		header := c.Response().Header()
		header.Set(headerRequestID, id.String())
		header.Set(echo.HeaderXContentTypeOptions, "nosniff")
		if state.api {
			// Responses contain customers' text and new keys: no cache may store them.
			header.Set(echo.HeaderCacheControl, "no-store")
		}

		state.tee = &tee{ResponseWriter: newPacedWriter(c.Response().Writer)}
		c.Response().Writer = state.tee
		state.base = c.Request().Context()
		body := watchBody(c)
		e.begin(c, state)
		defer state.end()

		e.cfg.Metrics.begin()
		brokeOff := false
		if err := e.guard(c, next); err != nil {
			brokeOff = c.Response().Committed
			c.Error(err)
		}
		took := e.cfg.Now().Sub(started)
		e.note(c, state, took)
		e.addCall(c, state, took)
		if brokeOff {
			panic(http.ErrAbortHandler) // the client must notice that the response is incomplete
		}
		state.end()
		if state.inner == nil {
			body.drain(c)
		}
		return nil
	}
}

// newRequestID returns a UUIDv7 with the time of the request, by which the request log finds it.
func newRequestID(at time.Time) (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, fmt.Errorf("draw a request id: %w", err)
	}
	millis := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(millis >> (8 * (5 - i))) //nolint:gosec // the low 8 bits
	}
	return id, nil
}

// guard runs the rest of the chain and turns a panic into an error.
func (e edge) guard(c echo.Context, next echo.HandlerFunc) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if failed, ok := v.(error); ok && errors.Is(failed, http.ErrAbortHandler) {
			panic(v)
		}
		e.cfg.Log.ErrorContext(c.Request().Context(), "panic while serving a request", "requestId", RequestID(c),
			"route", c.Path(), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		err = errPanic
	}()
	return next(c)
}

var errPanic = errors.New("panic while serving a request")

func (e edge) note(c echo.Context, state *request, took time.Duration) {
	req, res := c.Request(), c.Response()
	e.cfg.Metrics.end(req.Method, state.route.Path, res.Status, state.code, took)
	// Log the template, because a path may contain a customer's id or a webhook's token.
	attrs := []slog.Attr{
		slog.String("requestId", state.id.String()), slog.String("method", req.Method),
		slog.String("route", state.route.Path), slog.Int("status", res.Status),
		slog.Float64("durationMs", float64(took.Microseconds())/1000),
		slog.Int64("bytesOut", res.Size), slog.Int64("bytesIn", req.ContentLength),
	}
	if state.principal.Kind != "" {
		attrs = append(attrs, slog.String("principal", state.principal.Name()))
	}
	if state.principal.Project.Slug != "" {
		attrs = append(attrs, slog.String("project", state.principal.Project.Slug))
	}
	if state.code != "" {
		attrs = append(attrs, slog.String("code", state.code))
	}
	if state.refused != nil {
		attrs = append(attrs, slog.Any("err", state.refused))
	}
	e.cfg.Log.LogAttrs(req.Context(), state.level(res.Status, took), "request", attrs...)
}

// slow is how long a call may take that is not logged for it.
const slow = time.Second

// level returns the level at which a request is logged: an operator reads what the service refused, failed at or was
// slow with. Probes and scrapes of operators are for debugging.
func (r *request) level(status int, took time.Duration) slog.Level {
	switch {
	case !r.api && !r.page:
		return slog.LevelDebug
	case r.refused != nil:
		return slog.LevelWarn
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests, took >= slow:
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}
