// Package httpx is the edge of every HTTP surface: request ids, the error envelope, bodies, path
// parameters, credentials, access log and metrics.
package httpx

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/authmd"
)

// Config holds the parts of the API's edge.
type Config struct {
	// Log receives the access log and internal errors.
	Log *slog.Logger
	// URLs are the public addresses, for the 401 challenge and the protected-resource document.
	URLs auth.URLs
	// Proxies are those that are trusted to name who calls them.
	Proxies Proxies
	// Keys finds the owner of a key.
	Keys auth.Keys
	// Tokens verifies tokens of agents; nil refuses all.
	Tokens auth.TokenKeys
	// Metrics counts requests; nil counts nothing.
	Metrics *Metrics
	// Calls is the request log; nil logs no calls.
	Calls CallLog
	// Bodies bounds the bytes of request bodies in flight; nil means those of admission.Bodies.
	Bodies *Bodies
	// Answers bounds the bytes of answers that are built or being written; nil means those of admission.Answers.
	Answers *allowance.Allowance
	// Reads records what calls are shown of the projects that want it; nil records nothing.
	Reads Reads
	// Admit is called before every call of the API; its error is the response. Nil admits all.
	Admit func() error
	// Writes is called before every call that writes, once the project is known, and returns once there is room
	// for it; its error is the response. leave is called when the call ends. Nil admits all.
	Writes func(ctx context.Context, w admission.Write) (leave func(), err error)
	// Published serves publishable routes also to callers without a key.
	Published bool
	// Limit is called before every call of a known caller, except on exempt routes, and of one without a key, which has
	// no kind, and its address as the organization. If ok is false, the call is refused with Retry-After wait. Nil sets no
	// limit.
	Limit func(p auth.Principal) (retry time.Duration, ok bool)
	// Events admits events of webhooks; nil admits all that have a webhook.
	Events EventAdmission
	// MaxRequests bounds the calls of the API that are served at once, and so every queue that they
	// wait in; 0 means the total of admission.Calls.
	MaxRequests int64
	// MaxOfOne bounds those of one organization; 0 means its share of MaxRequests.
	MaxOfOne int64
	// Timeout bounds a request, without the time in which its body arrives; 0 means defaultTimeout.
	Timeout time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Router is what New makes.
type Router = echo.Echo

// defaultTimeout is how long a request may take once its body is there.
const defaultTimeout = 30 * time.Second

// New returns the router of the API: its edge, the protected-resource document, and on every route of
// the contract a 404 that needs the route's credentials. Packages writeapi and readapi replace these.
func New(cfg Config) *echo.Echo {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	cfg.MaxRequests = cmp.Or(cfg.MaxRequests, admission.Calls.Total)
	if cfg.Bodies == nil {
		cfg.Bodies = NewBodies(admission.Bodies)
	}
	if cfg.Answers == nil {
		cfg.Answers = admission.Answers.New()
	}
	cfg.Metrics.watch(cfg.Bodies, cfg.Answers)
	e := newEcho(cfg)
	outer := edge{cfg: cfg, routes: auth.NewTable()}
	e.Use(outer.serve, newGates(outer).admit)
	for _, r := range auth.Routes() {
		e.Add(r.Method, r.Path, echo.NotFoundHandler)
	}
	registerResources(e, cfg.URLs, false)
	namesMCP(e, cfg.URLs)
	e.GET(authmd.Path, func(c echo.Context) error {
		text, err := authmd.Render(cfg.URLs)
		if err != nil {
			return err
		}
		authmd.Header(c.Response().Header())
		return c.Blob(http.StatusOK, c.Response().Header().Get(echo.HeaderContentType), text)
	})
	return e
}

// RefuseRoutes answers each route of the contract for which refusal is not nil with that error, after
// the checks of its credentials.
func RefuseRoutes(e *echo.Echo, refusal func(auth.Route) error) {
	for _, r := range auth.Routes() {
		if err := refusal(r); err != nil {
			e.Add(r.Method, r.Path, func(echo.Context) error { return err })
		}
	}
}

// serializer writes JSON as text was sent: "<" stays "<".
type serializer struct{}

func (serializer) Serialize(c echo.Context, v any, _ string) error {
	if err := store(c); err != nil {
		return err
	}
	enc := json.NewEncoder(c.Response())
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write the response: %w", err)
	}
	return nil
}

// Deserialize is not used: bodies are read by Body.
func (serializer) Deserialize(echo.Context, any) error {
	return fmt.Errorf("bodies are read by httpx.Body")
}

// maxHeader is the most bytes of a request line and its headers.
const maxHeader = 64 << 10

// NewServer makes the HTTP server around a handler. Bodies and answers have deadlines that follow
// their progress (see Body and pacedWriter); the times here are for what is neither. A request that
// cannot be read as HTTP, or has an Expect header other than 100-continue, is answered by net/http
// itself, with no envelope.
func NewServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       bodyTime,
		WriteTimeout:      bodyTime + answerTime,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       keepConnection,
		ConnState:         trackConnection,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		// OPTIONS * is an unknown path like any other.
		DisableGeneralOptionsHandler: true,
	}
}

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

// headerRequestID is on every response; its value is made here, never taken from the caller.
const headerRequestID = "X-Request-Id"

// HeaderProject is on every response to a call whose project is known, but for the events of webhooks: an id that no
// other project has, in this store or another. An importer learns by it whether it sent to this project before.
const HeaderProject = "X-Annals-Project"

const requestKey = "annals.request"

// request is the state of a request at the edge.
type request struct {
	// api is true for a path under /api/v1, page for a page of the console; route is the requested route.
	api, page  bool
	route      auth.Route
	id         uuid.UUID
	receivedAt time.Time
	principal  auth.Principal
	// peer is the address of a caller without a key, as an id.
	peer uuid.UUID
	// query are the parameters that the route knows.
	query        url.Values
	invalidToken bool
	// code is the code of the answered fault, "" for a success.
	code string
	// refused is why the service cannot serve the call now, nil if it can.
	refused error
	// logged collects the request for the request log, nil if it is not logged. tee retains the
	// beginning of the response.
	logged *logged
	tee    *tee
	// note is what the handler adds for the request log.
	note Note
	// inner is a call in the process, nil for one from outside.
	inner *inner
	// timeout is how long the request may take once its body has arrived. bodies is the allowance of
	// its body.
	timeout time.Duration
	bodies  *Bodies
	// row is what the route asks for. holds are the places and slots of the call, answer is the reservation of
	// the response: they are returned once it is written. leave gives back the room of a write.
	row    admission.Route
	holds  []*allowance.Hold
	answer *allowance.Hold
	leave  func()
	// arriving is true while the body of a write has not arrived.
	arriving atomic.Bool
	// items is how many items the batch of the call has.
	items admission.Items
	// base is the context of the connection, cancels end those of the call.
	base    context.Context //nolint:containedctx // of the one request
	cancels []context.CancelFunc
	// release returns the reservation of the body. It runs when the response is written, since
	// decoded values live until then.
	release func()
}

func stateOf(c echo.Context) *request {
	if r, ok := c.Get(requestKey).(*request); ok {
		return r
	}
	return &request{}
}

// NoteItems notes how many items the batch of a request has, once its body was read.
func NoteItems(c echo.Context, n int) { stateOf(c).items.Note(n) }

// RequestID returns the UUIDv7 of the request, the same as in its X-Request-Id header.
func RequestID(c echo.Context) uuid.UUID { return stateOf(c).id }

// Query returns the parameters of the query that the route has in the table of routes. Others are ignored.
func Query(c echo.Context) url.Values { return stateOf(c).query }

// ReceivedAt returns the time of the request, in UTC, cut to microseconds.
func ReceivedAt(c echo.Context) time.Time { return stateOf(c).receivedAt }

// Principal returns the caller. It is zero on routes without credentials.
func Principal(c echo.Context) auth.Principal { return stateOf(c).principal }

// Note is what a handler knows about its call for the request log. Fields that it does not set are
// unknown. Set each field as soon as its value is known, so that refused calls have it too.
type Note struct {
	// Identity is the identity that the call is about or answers as.
	Identity string
	// IngestionID is the send that the call made or queued again.
	IngestionID uuid.UUID
	// CreditTenths is what the call was charged.
	CreditTenths int64
	// IDs are the data points that the call contained or returned. Their deletion blanks the bodies
	// of the call.
	IDs []uuid.UUID
	// Verdict is what the receiver decided on an event of a webhook, DroppedBy the filter that dropped it.
	Verdict, DroppedBy string
	// Hits are the results of a recall, in the order of ranks.
	Hits []uuid.UUID
}

// NoteOf returns the note of a call. The handler sets its fields.
func NoteOf(c echo.Context) *Note { return &stateOf(c).note }

// PathParam returns a path parameter, percent-decoded exactly once. It reads the path as sent,
// since the router returns some parameters decoded and some not.
func PathParam(c echo.Context, name string) (string, error) {
	template := strings.Split(c.Path(), "/")
	segments := strings.Split(c.Request().URL.EscapedPath(), "/")
	for i, t := range template {
		if t != ":"+name || i >= len(segments) {
			continue
		}
		value, err := url.PathUnescape(segments[i])
		if err != nil {
			return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s is not percent-encoded: %v", name, err)
		}
		if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s is not text in UTF-8 without U+0000", name)
		}
		return value, nil
	}
	return "", fault.New(fault.Internal, fault.CodeInternal, "the route has no parameter %s", name)
}

// PathRest returns the part of a path for the "*" at the end of its template, percent-decoded once.
func PathRest(c echo.Context) (string, error) {
	above := strings.Count(c.Path(), "/")
	segments := strings.SplitN(c.Request().URL.EscapedPath(), "/", above+1)
	rest, err := url.PathUnescape(segments[len(segments)-1])
	if err != nil {
		return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "the path is not percent-encoded: %v", err)
	}
	return rest, nil
}

// PathUUID returns a path parameter that is a UUID in its usual form of 36 characters. Any other
// text names nothing: 404 not-found.
func PathUUID(c echo.Context, name string) (uuid.UUID, error) {
	value, err := PathParam(c, name)
	if err != nil || len(value) != 36 {
		return uuid.Nil, fault.New(fault.NotFound, fault.CodeNotFound, "%s is not a UUID", name)
	}
	id, err := uuid.Parse(value)
	if err != nil {
		return uuid.Nil, fault.New(fault.NotFound, fault.CodeNotFound, "%s is not a UUID", name)
	}
	return id, nil
}
