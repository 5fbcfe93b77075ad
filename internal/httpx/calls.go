package httpx

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/requestlog"
)

// CallLog is the request log. Each call of a known project is added to it once, except those of
// unlogged routes and those beyond the rate limit.
type CallLog interface {
	// Open reserves room for a call before it is handled. The error is service-unavailable.
	Open(ctx context.Context, o allowance.Owner) (*allowance.Hold, error)
	// RetainsBodies reports whether the bodies of calls under a plan are kept.
	RetainsBodies(plan metering.Plan) bool
	// Add adds a finished call, and takes over its hold.
	Add(r requestlog.Record)
}

// logged is what the edge collects about a call for the request log. A nil *logged collects
// nothing.
type logged struct {
	hold *allowance.Hold
	// bodies is true if the bodies are kept.
	bodies bool
	// request is the beginning of the body that was read, requestBytes its length.
	request      []byte
	requestBytes int64
}

// logCall reserves room for the row of a call once its project is known.
func (e edge) logCall(c echo.Context, r *request) error {
	if e.cfg.Calls == nil || r.logged != nil || r.principal.Project.ID == uuid.Nil || r.route.Unlogged {
		return nil
	}
	hold, err := e.cfg.Calls.Open(c.Request().Context(), r.owner())
	if err != nil {
		return err
	}
	r.logged = &logged{hold: hold, bodies: !r.route.Bodiless && e.cfg.Calls.RetainsBodies(r.principal.Limits.Plan)}
	if r.logged.bodies {
		r.tee.hold, r.tee.ctx = hold, c.Request().Context()
	}
	return nil
}

// unlog drops the row of a call.
func (r *request) unlog() {
	if r.logged != nil {
		r.logged.hold.Release()
		r.logged, r.tee.hold = nil, nil
		r.route.Unlogged = true
	}
}

// copyRequest keeps the beginning of the body of a call. The caller must not change the body.
func (l *logged) copyRequest(ctx context.Context, body []byte) error {
	if l == nil {
		return nil
	}
	l.requestBytes = int64(len(body))
	if !l.bodies {
		return nil
	}
	start := body[:min(len(body), requestlog.MaxBody)]
	if err := l.hold.Reserve(ctx, int64(len(start))); err != nil {
		return err
	}
	l.request = start
	return nil
}

// addCall adds the call to the request log.
func (e edge) addCall(c echo.Context, r *request, took time.Duration) {
	l := r.logged
	if l == nil {
		return
	}
	req, res := c.Request(), c.Response()
	record := requestlog.Record{
		RequestID: r.id, Project: r.principal.Project.ID, ReceivedAt: r.receivedAt, Endpoint: endpointOf(req.Method, r.route),
		Path: req.URL.EscapedPath(), Status: res.Status, ErrorCode: r.code, Duration: took, Key: keyOf(r.principal),
		Identity: r.note.Identity, IngestionID: r.note.IngestionID, Plan: string(r.principal.Limits.Plan),
		RequestBytes: max(l.requestBytes, req.ContentLength), ResponseBytes: res.Size,
		RequestHeader: req.Header, ResponseHeader: res.Header(), IDs: r.note.IDs, Hits: r.note.Hits, Hold: l.hold,
		Webhook: r.eventOf(), Person: personOf(r.principal),
	}
	if r.principal.Limits.Plan.Metered() {
		record.CreditTenths = &r.note.CreditTenths
	}
	if r.inner != nil && r.inner.call.Tool != "" {
		record.Path = MCPPath + r.inner.call.Tool
		record.Endpoint = MCPMethod + " " + record.Path
	}
	if l.bodies {
		record.Payload = &requestlog.Payload{
			Request: l.request, RequestTruncated: int64(len(l.request)) < record.RequestBytes,
			Response: r.tee.start, ResponseTruncated: int64(len(r.tee.start)) < record.ResponseBytes,
		}
	}
	if record.ErrorCode == fault.CodeDataPointDeleted {
		record.Payload = nil // it may hold a text that was deleted
	}
	r.logged = nil
	e.cfg.Calls.Add(record)
}

// personOf is the person who makes a call at the console, or sends an event of a webhook there.
func personOf(p auth.Principal) uuid.UUID {
	switch {
	case p.Kind == auth.Person:
		return p.KeyID
	case p.Webhook != nil:
		return p.Webhook.SentBy
	default:
		return uuid.Nil
	}
}

var (
	parameters = regexp.MustCompile(`:([A-Za-z]+)`)
	methods    = []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions,
	}
)

// endpointOf returns the name of a route in the request log, as in "GET /api/v1/ingest/{ingestionId}".
// All unknown routes of a method share one name.
func endpointOf(method string, r auth.Route) string {
	if !slices.Contains(methods, method) {
		method = "OTHER"
	}
	if r.Unknown || r.Path == "" {
		return method + " " + auth.Prefix + "/*"
	}
	return method + " " + parameters.ReplaceAllString(r.Path, "{$1}")
}

// tee is a writer of responses that copies the beginning of the body.
type tee struct {
	http.ResponseWriter
	// hold is the reservation of the call; nil copies nothing.
	hold  *allowance.Hold
	ctx   context.Context //nolint:containedctx // of the one request that the writer belongs to
	start []byte
}

// Unwrap is for http.ResponseController.
func (t *tee) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Write implements io.Writer.
func (t *tee) Write(b []byte) (int, error) {
	n, err := t.ResponseWriter.Write(b)
	if t.hold != nil {
		t.retain(b[:n])
	}
	return n, err
}

// retain copies what fits. If there is no room for it in time, it ignores the rest of the response.
func (t *tee) retain(b []byte) {
	b = b[:min(len(b), requestlog.MaxBody-len(t.start))]
	if len(b) == 0 {
		return
	}
	if need := len(t.start) + len(b); need > cap(t.start) {
		size := min(max(need, 2*cap(t.start)), requestlog.MaxBody)
		if err := t.hold.Reserve(t.ctx, int64(size-cap(t.start))); err != nil {
			t.hold = nil
			return
		}
		grown := make([]byte, len(t.start), size)
		copy(grown, t.start)
		t.start = grown
	}
	t.start = append(t.start, b...)
}

// managementName is the name of a management key in the request log.
const managementName = "management key"

func keyOf(p auth.Principal) requestlog.Key {
	if p.Kind == auth.ManagementKey {
		return requestlog.Key{Name: managementName, Prefix: p.KeyPrefix}
	}
	return requestlog.Key{Name: p.KeyName, Prefix: p.KeyPrefix}
}
