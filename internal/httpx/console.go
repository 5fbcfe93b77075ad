package httpx

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	html "html/template"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
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

// Home is the page at the root of an address: what the address is, with links and no data.
type Home struct {
	// Title names the address. Text is what it is for.
	Title, Text string
	Links       []Link
}

// Link is a link of a page. Its target is a path of the address, or another public address.
type Link struct{ Target, Text string }

var home = html.Must(html.New("home").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
</head>
<body>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
<ul>
{{range .Links}}<li><a href="{{.Target}}">{{.Text}}</a></li>
{{end}}</ul>
</body>
</html>
`))

func (page Home) html() ([]byte, error) {
	var body bytes.Buffer
	err := home.Execute(&body, page)
	return body.Bytes(), err
}

// homePolicy lets the page load nothing, run nothing, and be shown in no frame.
const homePolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// RegisterHome adds a page at / to a router.
func RegisterHome(e *echo.Echo, page Home) error {
	body, err := page.html()
	if err != nil {
		return err
	}
	e.Match([]string{http.MethodGet, http.MethodHead}, "/", func(c echo.Context) error {
		header := c.Response().Header()
		header.Set(echo.HeaderContentSecurityPolicy, homePolicy)
		header.Set(echo.HeaderReferrerPolicy, "no-referrer")
		return c.HTMLBlob(http.StatusOK, body)
	})
	return nil
}

// MaxInnerAnswer is the most bytes of the answer to an inner call that InnerAnswer holds.
const MaxInnerAnswer = 1 << 20

// Inner makes calls of the API in the process, for people at the console and for tools. They pass the edge as calls
// from outside do, so they are admitted, charged and logged alike. Only the caller is given instead of a key, and the
// limit of calls a minute of an organization does not count what people do at the console.
type Inner struct {
	// API is the router of New.
	API http.Handler
	// Answers is the allowance of what callers make of answers; nil bounds nothing.
	Answers *allowance.Allowance
}

// Reserve reserves bytes that a caller makes of an answer. They are to be released once nothing of it is held.
func (i Inner) Reserve(ctx context.Context, as auth.Principal, n int64) (*allowance.Hold, error) {
	if i.Answers == nil {
		return nil, nil //nolint:nilnil // nothing is held
	}
	hold := i.Answers.Open(allowance.Owner{Organization: as.OrganizationID, Project: as.Project.ID})
	return hold, hold.Reserve(ctx, n)
}

// InnerCall is a call in the process.
type InnerCall struct {
	// As is the caller with the project that the call may touch. Whether it may make the call was checked before.
	As                        auth.Principal
	Method, Path, ContentType string
	Body                      []byte
	// Route is the route of the call as the table of routes has it, such as /api/v1/requests/:requestId. A path that leads
	// to another is not found, whatever the ids in it are. "" is the route of the path.
	Route string
	// To takes the answer instead of InnerAnswer.Body, which has at most MaxInnerAnswer bytes. Values bounds what the
	// answer needs to have.
	To     io.Writer
	Values Values
	// Test marks an event of a webhook as one that a person sent to try the webhook, Replay as one whose body is that of
	// an event before.
	Test, Replay bool
	// Tool is the tool of MCP that makes the call, "" for the console. The row of the call in the request log has the
	// method MCP and names the tool.
	Tool string
	// Own bounds what the call may replace or delete to what this identity wrote; nil bounds nothing.
	Own *string
	// KeepAudience keeps the audience of a text that is sent again without one.
	KeepAudience bool
	// Private makes a text that is sent private to its identity, PrivateIfNew one that is new and is sent without an
	// audience.
	Private, PrivateIfNew bool
	// Placed takes the audience that a text that is sent is in then, unless its idempotency key was used before; nil takes
	// nothing.
	Placed func(audience uuid.UUID)
	// Serve answers the call in place of the handler of its route, once the route has admitted it; nil is the handler.
	Serve echo.HandlerFunc
}

// InnerOf returns the call in the process that a handler answers, the zero value for a call from outside.
func InnerOf(c echo.Context) InnerCall {
	if r := stateOf(c); r.inner != nil {
		return r.inner.call
	}
	return InnerCall{}
}

// MCPMethod and MCPPath are what a call by a tool has in the request log instead of its method and path. The path goes
// on with the name of the tool.
const (
	MCPMethod = "MCP"
	MCPPath   = "/mcp#"
)

// Values bounds metadata in an answer: where the answer would have more than Total bytes, the API leaves out that of
// more than Each bytes, and counts it. The zero value bounds nothing.
type Values struct{ Total, Each int64 }

// InnerAnswer is the answer to a call in the process. RequestID is that of its row in the request log.
type InnerAnswer struct {
	RequestID uuid.UUID
	Status    int
	Body      []byte
	// LeftOut counts by name what the API left out for InnerCall.Values.
	LeftOut map[string]int
}

// ValuesOf returns what bounds the metadata in the answer of a call.
func ValuesOf(c echo.Context) Values {
	if r := stateOf(c); r.inner != nil {
		return r.inner.call.Values
	}
	return Values{}
}

// LeftOut counts what the answer of a call leaves out for its Values.
func LeftOut(c echo.Context, name string, n int) {
	if r := stateOf(c); n > 0 && r.inner != nil {
		r.inner.leftOut[name] += n
	}
}

// Do makes a call. The error is the fault that refused it; the answer then has the id of the request alone.
func (i Inner) Do(ctx context.Context, call InnerCall) (InnerAnswer, error) {
	state := &inner{call: call, leftOut: map[string]int{}}
	req, err := http.NewRequestWithContext(context.WithValue(ctx, innerKey{}, state), call.Method, call.Path,
		bytes.NewReader(call.Body))
	if err != nil {
		return InnerAnswer{}, fmt.Errorf("make a call in the process: %w", err)
	}
	agent := "annals-console"
	if call.Tool != "" {
		agent = "annals-mcp"
	}
	req.Header.Set("User-Agent", agent)
	if call.ContentType != "" {
		req.Header.Set(echo.HeaderContentType, call.ContentType)
	}
	w := &innerWriter{header: http.Header{}, status: http.StatusOK, to: call.To}
	if err := i.serve(w, req); err != nil {
		return InnerAnswer{RequestID: state.id}, err
	}
	if state.refusal != nil {
		return InnerAnswer{RequestID: state.id}, state.refusal
	}
	return InnerAnswer{RequestID: state.id, Status: w.status, Body: w.body.Bytes(), LeftOut: state.leftOut}, nil
}

// serve serves a request. The edge panics if the answer breaks off.
func (i Inner) serve(w *innerWriter, req *http.Request) (err error) {
	defer func() {
		v := recover()
		if failed, is := v.(error); is && errors.Is(failed, http.ErrAbortHandler) {
			err = fault.New(fault.Internal, fault.CodeInternal, "the answer broke off")
			switch {
			case req.Context().Err() != nil:
				err = req.Context().Err()
			case w.failed != nil:
				err = fault.New(fault.TooLarge, fault.CodeContentTooLarge, "the answer is too long: ask the API for it")
			}
		} else if v != nil {
			panic(v)
		}
	}()
	i.API.ServeHTTP(w, req)
	return nil
}

type innerKey struct{}

// inner is the state of a call in the process.
type inner struct {
	call InnerCall
	// id and refusal are what the edge answers: the id of the request, and the fault if it is refused.
	id      uuid.UUID
	refusal error
	leftOut map[string]int
}

// innerOf returns the state of a call in the process, nil for a call from outside.
func innerOf(req *http.Request) *inner {
	call, _ := req.Context().Value(innerKey{}).(*inner)
	return call
}

// innerWriter holds an answer, or passes it on.
type innerWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
	to     io.Writer
	// failed is why no more is taken.
	failed error
}

// Header implements http.ResponseWriter.
func (w *innerWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *innerWriter) WriteHeader(status int) { w.status = status }

// Write implements io.Writer.
func (w *innerWriter) Write(b []byte) (n int, err error) {
	switch {
	case w.status >= http.StatusBadRequest: // Do returns the fault
		return len(b), nil
	case w.to != nil:
		n, err = w.to.Write(b)
	case w.body.Len()+len(b) > MaxInnerAnswer:
		err = errors.New("the answer is too long")
	default:
		n, err = w.body.Write(b)
	}
	if err != nil {
		w.failed = err
	}
	return n, err
}
