package httpx

import (
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/auth"
)

// Console is the router of the console's address.
type Console struct{ *echo.Echo }

// NewConsole makes the router of the console's address: the protected-resource document, which the
// challenge of every 401 names, and an answer of "not found" for everything else, the paths of the
// API too. Of the configuration it takes the log, the addresses, the timeout and the clock.
func NewConsole(cfg Config) *Console {
	e := NewOperation(cfg)
	registerResource(e, auth.APIResource(cfg.URLs))
	return &Console{e}
}

// NewOperation makes the router of an address that operators alone reach: an answer of "not found"
// for everything until routes are registered. It takes of the configuration what NewConsole takes.
func NewOperation(cfg Config) *echo.Echo {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	cfg.Metrics, cfg.Bodies = nil, NewBodies(admission.Bodies)
	e := newEcho(cfg)
	e.Use(edge{cfg: cfg}.serve)
	return e
}

// newEcho makes a router whose errors are envelopes.
func newEcho(cfg Config) *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.JSONSerializer = serializer{}
	e.HTTPErrorHandler = errorWriter{urls: cfg.URLs, log: cfg.Log}.write
	return e
}
