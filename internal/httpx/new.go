package httpx

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
)

// Config is what the API's edge is made of.
type Config struct {
	// Log takes the access log and what went wrong inside.
	Log *slog.Logger
	// URLs are the public addresses, for the 401 challenge and the protected-resource document.
	URLs auth.URLs
	// Keys finds who a key belongs to.
	Keys auth.Keys
	// Metrics counts requests; nil counts nothing.
	Metrics *Metrics
	// Bodies bounds the bytes of request bodies in flight; nil means NewBodies(BodyBytes).
	Bodies *Bodies
	// Answers bounds the bytes of answers that are built or being written; nil means NewAnswers().
	Answers *allowance.Allowance
	// Gate is asked before every call of the API; its error is the answer. Nil lets all through.
	Gate func() error
	// Writes is asked before every call that writes, once it is known who calls; its error is the answer. Nil lets all through.
	Writes func(by auth.Principal, deletion bool) error
	// Limit is asked before every call of a known caller, but for those that are outside of the limit; where ok is false the call is
	// refused, and the caller told to wait for so long. Nil lets all through.
	Limit func(p auth.Principal) (retry time.Duration, ok bool)
	// MaxRequests bounds the calls of the API that are served at once, and with them every queue behind; 0 means DefaultMaxRequests.
	MaxRequests int64
	// MaxOfOne bounds those of one organization; 0 means a quarter of MaxRequests.
	MaxOfOne int64
	// Timeout is how long a request may take beside the time its body may take to arrive; 0 means DefaultTimeout.
	Timeout time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// DefaultTimeout is how long a request may take once its body is there.
const DefaultTimeout = 30 * time.Second

// DefaultMaxRequests is how many calls of the API are served at once.
const DefaultMaxRequests = 4096

// New makes the router of the API with its edge, the protected-resource document, and an answer of "not found", behind the
// credentials that the contract asks for, on every route of the contract. Packages writeapi and readapi register over those.
func New(cfg Config) *echo.Echo {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.MaxRequests == 0 {
		cfg.MaxRequests = DefaultMaxRequests
	}
	if cfg.MaxOfOne == 0 {
		cfg.MaxOfOne = max(cfg.MaxRequests/4, 1)
	}
	if cfg.Bodies == nil {
		cfg.Bodies = NewBodies(BodyBytes)
	}
	if cfg.Answers == nil {
		cfg.Answers = NewAnswers()
	}
	cfg.Metrics.watch(cfg.Bodies, cfg.Answers)
	e := newEcho(cfg)
	authenticator := auth.NewAuthenticator(cfg.Keys)
	e.Use(
		edge{cfg: cfg}.serve,
		atMost(cfg.MaxRequests),
		refuseBrowsers,
		gate(cfg.Gate),
		authenticate(authenticator),
		atMostOfOne(cfg.MaxRequests, cfg.MaxOfOne),
		limitRate(cfg.Limit),
		exactRoute,
		narrow(authenticator),
		holdAnswers(cfg.Answers),
		writesGate(cfg.Writes),
	)
	for _, r := range auth.Routes() {
		e.Add(r.Method, r.Path, echo.NotFoundHandler)
	}
	registerResource(e, auth.APIResource(cfg.URLs))
	return e
}

// serializer writes JSON as text was sent: "<" stays "<".
type serializer struct{}

func (serializer) Serialize(c echo.Context, v any, _ string) error {
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

// NewServer makes the HTTP server around a handler. Bodies and answers have deadlines that
// follow their progress (see Body and pacedWriter); the times here are for what is neither. A request
// that cannot be read as HTTP, or has an Expect header other than 100-continue, is answered by net/http itself, with no envelope.
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
		// OPTIONS * is a path that is not there, like any other.
		DisableGeneralOptionsHandler: true,
	}
}
