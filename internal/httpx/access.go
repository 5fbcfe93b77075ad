package httpx

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/requestlog"
)

// step is one question of the admission of a call. Its error is the response.
type step struct {
	name string
	ask  func(e *gates, c echo.Context, r *request) error
}

// steps is the order in which a call of the API is admitted. docs/limits.md lists it. What a call takes is
// returned at its end. All of it comes before the body is read.
var steps = []step{
	{"a place among all calls", (*gates).place},
	{"no origin of a browser", refuseBrowsers},
	{"the service is ready", (*gates).ready},
	{"the key, with a look-up if it is not known yet", (*gates).authenticate},
	{"a place among the calls of known callers", (*gates).placeOfOwner},
	{"the rate of the organization", (*gates).rate},
	{"the plan, the rate and the state of a webhook", (*gates).events},
	{"the route exists", exactRoute},
	{"the names of the parameters of the query", (*gates).query},
	{"the project that the call names", (*gates).project},
	{"disk and log, then room for what is derived", (*gates).writes},
	{"a slot of its kind of call", (*gates).slot},
}

// gates holds what the steps ask.
type gates struct {
	edge
	authenticator *auth.Authenticator
	serving       *allowance.Allowance
	calls         *allowance.Allowance
	slots         map[*admission.Resource]*allowance.Allowance
	// parameters are those of each route.
	parameters map[string]fields.Names
}

func newGates(e edge) *gates {
	cfg := e.cfg
	calls, slots := admission.Calls.Of(cfg.MaxRequests), map[*admission.Resource]*allowance.Allowance{}
	if cfg.MaxOfOne > 0 {
		calls.Organization, calls.Project = cfg.MaxOfOne, cfg.MaxOfOne
	}
	parameters := map[string]fields.Names{}
	for _, r := range auth.Routes() {
		parameters[r.Method+" "+r.Path] = fields.NewNames(r.Parameters()...)
		if row, _ := admission.RouteOf(r); row.Slot != nil && slots[row.Slot] == nil {
			slots[row.Slot] = row.Slot.New()
		}
	}
	agents := auth.AgentTokens{Keys: cfg.Tokens, URLs: cfg.URLs}
	return &gates{
		edge: e, authenticator: auth.NewAuthenticator(cfg.Keys).WithAgents(agents),
		serving: admission.Serving.Of(cfg.MaxRequests).New(),
		calls:   calls.New(), slots: slots, parameters: parameters,
	}
}

// admit asks every step of every call of the API. Other paths only need a route.
func (g *gates) admit(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := stateOf(c)
		if !r.api {
			if err := exactRoute(g, c, r); err != nil {
				return err
			}
			return next(c)
		}
		r.row, _ = admission.RouteOf(r.route)
		for _, s := range steps {
			if err := s.ask(g, c, r); err != nil {
				return err
			}
		}
		if r.inner != nil && r.inner.call.Serve != nil {
			return g.recorded(c, r, r.inner.call.Serve)
		}
		return g.recorded(c, r, next)
	}
}

// owner is who shares: the organization and the project of a call, once they are known, or the address of a caller
// without a key.
func (r *request) owner() allowance.Owner {
	if r.principal.Kind == "" {
		return allowance.Owner{Organization: r.peer, Project: r.peer}
	}
	return allowance.Owner{Organization: r.principal.OrganizationID, Project: r.principal.Project.ID}
}

// take reserves one unit until the end of the call.
func (r *request) take(c echo.Context, a *allowance.Allowance, of allowance.Owner) error {
	hold := a.Open(of)
	r.holds = append(r.holds, hold)
	return hold.Reserve(c.Request().Context(), 1)
}

func (g *gates) place(c echo.Context, r *request) error {
	return r.take(c, g.serving, allowance.Owner{})
}

func (g *gates) placeOfOwner(c echo.Context, r *request) error { return r.take(c, g.calls, r.owner()) }

func (g *gates) slot(c echo.Context, r *request) error {
	if r.row.Slot == nil {
		return nil
	}
	return r.take(c, g.slots[r.row.Slot], r.owner())
}

// refuseBrowsers refuses every call of the API that names an origin, preflight or not, before it
// looks at a credential: the API is called from servers. No response of the API carries
// Access-Control-Allow-Origin.
func refuseBrowsers(_ *gates, c echo.Context, _ *request) error {
	if len(c.Request().Header.Values(echo.HeaderOrigin)) > 0 {
		return fault.New(fault.Forbidden, fault.CodeCORSRefused,
			"the API is called from a server: requests from a browser origin are refused")
	}
	return nil
}

// ready refuses the calls of the API while the service is not ready for them.
func (g *gates) ready(echo.Context, *request) error {
	if g.cfg.Admit == nil {
		return nil
	}
	return g.cfg.Admit()
}

// authenticate finds the principal of every call of the API, for unknown paths as well.
func (g *gates) authenticate(c echo.Context, r *request) (err error) {
	ctx := auth.WithPeer(c.Request().Context(), g.cfg.Proxies.Caller(c.Request()))
	switch {
	case r.inner != nil:
		r.principal = r.inner.call.As
		return g.logCall(c, r)
	case r.route.Webhook:
		if r.principal, err = authenticateEvent(ctx, c, g.authenticator); err != nil {
			return err
		}
		return g.logCall(c, r)
	}
	header := c.Request().Header
	if r.route.Publishable && g.cfg.Published && len(header.Values(echo.HeaderAuthorization)) == 0 {
		r.peer = auth.Peer(ctx)
		return nil
	}
	if r.principal, err = g.authenticator.Authenticate(ctx, r.route, header); err != nil {
		r.invalidToken = auth.CarriesAgentToken(header)
	}
	nameProject(c, r)
	if full := g.logCall(c, r); full != nil {
		return full
	}
	return err
}

// nameProject adds the id of the project to the response, except to the events of webhooks: another system sends them.
func nameProject(c echo.Context, r *request) {
	if id := r.principal.Project.ID; id != uuid.Nil && !r.route.Webhook {
		c.Response().Header().Set(HeaderProject, id.String())
	}
}

// rate refuses calls beyond the rate limit of the caller's organization, without a body. Exempt
// routes and calls of the console neither count nor are refused.
func (g *gates) rate(_ echo.Context, r *request) error {
	if g.cfg.Limit == nil || r.route.Unlimited || r.inner != nil && r.inner.call.Tool == "" {
		return nil
	}
	caller := r.principal
	caller.OrganizationID = r.owner().Organization
	if retry, ok := g.cfg.Limit(caller); !ok {
		return rateError{retry}
	}
	return nil
}

// query refuses parameters whose names misspell one that the route knows. The URL of a webhook is written by another
// system, which may add what it likes.
func (g *gates) query(c echo.Context, r *request) error {
	if r.route.Webhook || c.Request().URL.RawQuery == "" {
		return nil
	}
	names, sent := g.parameters[r.route.Method+" "+r.route.Path], c.QueryParams()
	r.query = url.Values{}
	var problems fields.Problems
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		if names.Has(name) {
			r.query[name] = sent[name]
		} else if len(name) <= rawjson.MaxName {
			problems.CheckName(names, "", []byte(name))
		}
	}
	return problems.Err()
}

// project finds the project that a call names in addition to its key, and gives the call room for its answer.
func (g *gates) project(c echo.Context, r *request) error {
	principal, err := g.authenticator.SelectProject(c.Request().Context(), r.route, r.query, r.principal)
	if err != nil {
		return err
	}
	r.principal = principal
	nameProject(c, r)
	r.answer = g.cfg.Answers.Open(r.owner())
	c.SetRequest(c.Request().WithContext(allowance.NewContext(c.Request().Context(), r.answer)))
	return g.logCall(c, r)
}

// writes admits the calls that write. While one waits, it holds no place among the calls, and its time does not
// run.
func (g *gates) writes(c echo.Context, r *request) error {
	if g.cfg.Writes == nil || !r.route.Writes() {
		return nil
	}
	parked := false
	r.arriving.Store(c.Request().ContentLength != 0)
	leave, err := g.cfg.Writes(r.base, admission.Write{
		Owner: r.owner(), Lane: r.row.Lane, Length: c.Request().ContentLength, Gone: leftBy(c.Request()),
		Arriving: r.arriving.Load, Items: &r.items,
		Parked: func() {
			parked = true
			for _, h := range r.holds {
				h.Release()
			}
		},
	})
	if err != nil {
		return err
	}
	r.leave = leave
	if !parked {
		return nil
	}
	for _, h := range r.holds {
		if err := h.Reserve(c.Request().Context(), 1); err != nil {
			return err
		}
	}
	g.begin(c, r)
	return nil
}

// begin gives a call its time: that in which its body arrives, and that of its work.
func (e edge) begin(c echo.Context, r *request) {
	ctx, cancel := context.WithTimeout(r.base, e.cfg.Timeout+e.cfg.Bodies.timeOf(c.Request()))
	if r.answer != nil {
		ctx = allowance.NewContext(ctx, r.answer)
	}
	r.cancels = append(r.cancels, cancel)
	c.SetRequest(c.Request().WithContext(ctx))
	if c.Request().ContentLength != 0 {
		// A body that is not read blocks its connection no longer than this.
		_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Now().Add(bodyGrace))
	}
}

// end returns what the call took. It may be called again.
func (r *request) end() {
	r.release()
	r.answer.Release()
	if r.leave != nil {
		r.leave()
		r.leave = nil
	}
	for _, h := range r.holds {
		h.Release()
	}
	if r.logged != nil {
		r.logged.hold.Release() // the request was aborted
	}
	for _, cancel := range r.cancels {
		cancel()
	}
}

// template returns the template of the request's route, "" if no route matches. Unlike the router,
// the API accepts no slash in the last parameter unless that is "*".
func template(c echo.Context) string {
	all, named := strings.Count(c.Request().URL.EscapedPath(), "/"), strings.Count(c.Path(), "/")
	if all != named && (all < named || !strings.HasSuffix(c.Path(), "/*")) {
		return ""
	}
	return c.Path()
}

// exactRoute refuses what only the router accepts: see template, and OPTIONS.
func exactRoute(_ *gates, c echo.Context, r *request) error {
	if r.route.Path == "" || r.inner != nil && r.inner.call.Route != "" && r.inner.call.Route != r.route.Path {
		return echo.ErrNotFound
	}
	if c.Request().Method == http.MethodOptions && c.Get(echo.ContextKeyHeaderAllow) != nil {
		return echo.ErrMethodNotAllowed
	}
	return nil
}

// registerResources serves the protected-resource documents, which any origin may read. That of the path which names
// no resource is what the address stands for: the API's, or /mcp's on the console's and where both are one.
func registerResources(e *echo.Echo, urls auth.URLs, console bool) {
	open := func(c echo.Context) {
		header := c.Response().Header()
		header.Set(echo.HeaderAccessControlAllowOrigin, "*")
		header.Set(echo.HeaderAccessControlAllowMethods, http.MethodGet)
		header.Set(echo.HeaderCacheControl, "public, max-age=300")
	}
	docs := map[string]auth.Resource{auth.ResourcePath: auth.APIResource(urls)}
	for _, path := range auth.MCPPaths() {
		docs[auth.AnyResourcePath+path] = auth.MCPResource(urls, path)
	}
	docs[auth.AnyResourcePath] = docs[auth.ResourcePath]
	if console || urls.API == urls.Console {
		docs[auth.AnyResourcePath] = docs[auth.AnyResourcePath+auth.MCPPath]
	}
	for path, doc := range docs {
		e.GET(path, func(c echo.Context) error {
			open(c)
			return c.JSON(http.StatusOK, doc)
		})
		e.OPTIONS(path, func(c echo.Context) error {
			open(c)
			return c.NoContent(http.StatusNoContent)
		})
	}
}

// EventAdmission decides whether a webhook may receive events now.
type EventAdmission interface {
	// Includes reports whether the plan of a webhook has webhooks.
	Includes(p auth.Principal) bool
	// Count counts an event of a webhook over all processes. ok is false if there are too many in this
	// minute; then retry is when to try again.
	Count(ctx context.Context, webhookID string) (retry time.Duration, ok bool, err error)
}

// authenticateEvent finds the webhook of a call by its URL. What cannot be a path parameter is no token.
func authenticateEvent(ctx context.Context, c echo.Context, a *auth.Authenticator) (auth.Principal, error) {
	parameter := func(name string) string {
		value, err := PathParam(c, name)
		if err != nil {
			return ""
		}
		return value
	}
	return a.AuthenticateEvent(ctx, parameter("webhookId"), parameter("token"))
}

// events applies the checks of a webhook to its events, in the order of the contract, before their body is read.
func (g *gates) events(c echo.Context, r *request) error {
	if !r.route.Webhook {
		return nil
	}
	w := r.principal.Webhook
	if admission := g.cfg.Events; admission != nil {
		if !admission.Includes(r.principal) {
			return fault.New(fault.PaymentRequired, fault.CodeWebhooksNotIncluded, "the plan has no webhooks: change the plan")
		}
		retry, ok, err := admission.Count(c.Request().Context(), w.ID)
		if err != nil {
			return err
		}
		if !ok {
			return rateError{retry}
		}
	}
	switch {
	case w.Paused:
		return fault.New(fault.Conflict, fault.CodeWebhookPaused, "the webhook is paused: the event is not kept")
	case w.Archived:
		return fault.New(fault.Forbidden, fault.CodeProjectArchived, "the project of this webhook is archived")
	}
	return nil
}

// rateError refuses a call beyond a rate limit: without a body, and without a row in the request log.
type rateError struct{ retry time.Duration }

// Error implements error.
func (e rateError) Error() string { return "too many calls in this minute" }

func (e rateError) write(c echo.Context, r *request) error {
	seconds := max(int64((e.retry+time.Second-1)/time.Second), 1)
	c.Response().Header().Set(echo.HeaderRetryAfter, strconv.FormatInt(seconds, 10))
	c.Response().Header().Set(echo.HeaderContentLength, "0")
	r.unlog()
	if r.inner != nil {
		r.inner.refusal = &fault.Error{Kind: fault.LimitReached, Msg: fmt.Sprintf("%v: try again in %d s", e, seconds)}
	}
	return c.NoContent(http.StatusTooManyRequests)
}

// EventID returns the id of the event that a request carries: "evt_" and the 26 characters of the request
// id in Crockford's base 32, which sort by time.
func EventID(requestID uuid.UUID) string {
	text := []byte("evt_00000000000000000000000000")
	bits, left, at := uint32(0), 0, len(text)
	for i := len(requestID) - 1; i >= 0; i-- {
		bits |= uint32(requestID[i]) << left
		for left += 8; left >= 5; left -= 5 {
			at--
			text[at] = alphabet[bits&31]
			bits >>= 5
		}
	}
	text[at-1] = alphabet[bits&31] // the 3 bits that are left
	return string(text)
}

// alphabet are the digits of ids of events.
const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// RequestOfEvent returns the id of the request that carried an event, if the text is the id of one.
func RequestOfEvent(id string) (request uuid.UUID, ok bool) {
	digits, is := strings.CutPrefix(id, "evt_")
	if !is || len(digits) != 26 {
		return request, false
	}
	number := new(big.Int)
	for _, c := range []byte(digits) {
		digit := strings.IndexByte(alphabet, c)
		if digit < 0 {
			return request, false
		}
		number.Add(number.Lsh(number, 5), big.NewInt(int64(digit)))
	}
	if number.BitLen() > 128 {
		return request, false
	}
	number.FillBytes(request[:])
	return request, true
}

// eventOf is the event of a call for the request log, nil for another call. A refused event has no verdict.
func (r *request) eventOf() *requestlog.Webhook {
	w := r.principal.Webhook
	if w == nil {
		return nil
	}
	event := &requestlog.Webhook{
		ID: w.ID, Name: w.Settings.Name, EventID: EventID(r.id), Verdict: r.note.Verdict,
	}
	if r.inner != nil {
		event.Test, event.Replay = r.inner.call.Test, r.inner.call.Replay
	}
	if r.note.DroppedBy != "" {
		event.DroppedBy = &r.note.DroppedBy
	}
	return event
}
