package httpx

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/auth"
)

// Console is the router of the console's address.
type Console struct {
	*echo.Echo

	urls auth.URLs
}

// NewConsole makes the router of the console's address: the protected-resource documents, which the
// challenge of every 401 names, and an answer of "not found" for everything else, the paths of the
// API too. Of the configuration it takes the log, the addresses, the timeout and the clock.
func NewConsole(cfg Config) *Console {
	e := NewOperation(cfg)
	registerResources(e, cfg.URLs, true)
	return &Console{e, cfg.URLs}
}

// elsewhere is the fault of a path that the other address serves: half of all first calls go to the wrong one.
func elsewhere(what, address string) error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "%s is served at %s", what, address)
}

// namesMCP answers the paths of MCP at the address of the API.
func namesMCP(e *echo.Echo, urls auth.URLs) {
	if urls.API == urls.Console {
		return
	}
	for _, path := range auth.MCPPaths() {
		e.Any(path, func(echo.Context) error { return elsewhere("the Model Context Protocol", urls.Console+path) })
	}
}

// Page writes a page of the console's address. Its error becomes a page with the status of the fault, as a panic does.
type Page func(w http.ResponseWriter, r *http.Request) error

// pageBody is the most bytes of the body of a request to a page.
const pageBody = 64 << 10

// Handle serves a page at a path, or with a path that ends in a slash at all below it. Unless the page sets other
// headers, it loads and runs nothing, and is shown in no frame.
func (c *Console) Handle(path string, page Page) {
	serve := func(call echo.Context) error {
		state, req, header := stateOf(call), call.Request(), call.Response().Header()
		state.page, state.route.Path = true, path
		header.Set(echo.HeaderContentSecurityPolicy, homePolicy)
		header.Set(echo.HeaderReferrerPolicy, "no-referrer")
		req.Body = http.MaxBytesReader(call.Response(), req.Body, pageBody)
		err := page(call.Response(), req)
		if _, is := errors.AsType[*http.MaxBytesError](err); is {
			return tooLarge(pageBody)
		}
		return err
	}
	c.Any(path, serve)
	if strings.HasSuffix(path, "/") {
		c.Any(path+"*", serve)
	}
}

// PageNote is what the log and the metrics record of a request to a site.
type PageNote struct {
	// Route is the template of the page, without what a customer wrote.
	Route string
	// Principal is who is signed in. Code is that of the fault that the page shows.
	Principal auth.Principal
	Code      string
}

// Site writes the pages below / of the console's address, also those of its faults. It bounds the bodies and the time
// itself.
type Site func(w http.ResponseWriter, r *http.Request, note *PageNote) error

// HandleSite serves a site at every path that has no page of its own and is none of the API.
func (c *Console) HandleSite(site Site) {
	serve := func(call echo.Context) error {
		if isAPI(call) && c.urls.API != c.urls.Console {
			return elsewhere("the API", c.urls.API+auth.Prefix)
		} else if isAPI(call) {
			return echo.ErrNotFound
		}
		state, note := stateOf(call), &PageNote{Route: "/*"}
		state.page, state.route.Path = true, note.Route
		defer func() { state.route.Path, state.principal, state.code = note.Route, note.Principal, note.Code }()
		return site(call.Response(), call.Request().WithContext(state.base), note)
	}
	c.Any("/", serve)
	c.Any("/*", serve)
}

// NewOperation makes the router of an address that operators alone reach: an answer of "not found"
// for everything until routes are registered. It takes of the configuration what NewConsole takes.
func NewOperation(cfg Config) *echo.Echo {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
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
