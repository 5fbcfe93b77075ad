package httpx

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

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
