package httpx

import (
	"cmp"
	"context"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/readlog"
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

// Metrics counts the requests of one HTTP surface. A nil *Metrics counts nothing.
type Metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
	// bodies and answers are what the gauges of bytes in flight read, once there are some.
	bodies  atomic.Pointer[Bodies]
	answers atomic.Pointer[allowance.Allowance]
}

// NewMetrics registers the metrics of the API with a registry.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "annals_http_requests_total", Help: "Requests answered, by route template, status and error code.",
		}, []string{"method", "route", "status", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "annals_http_request_duration_seconds", Help: "Time from the headers of a request to the end of its response.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"method", "route"}),
		inFlight: prometheus.NewGauge(
			prometheus.GaugeOpts{Name: "annals_http_requests_in_flight", Help: "Requests being served."},
		),
	}
	bodies := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "annals_http_body_bytes_in_flight", Help: "Bytes that request bodies have reserved of their allowance.",
	}, func() float64 {
		if b := m.bodies.Load(); b != nil {
			return float64(b.InFlight())
		}
		return 0
	})
	answers := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "annals_http_answer_bytes_in_flight", Help: "Bytes that answers have reserved of their allowance.",
	}, func() float64 {
		if a := m.answers.Load(); a != nil {
			return float64(a.InUse())
		}
		return 0
	})
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.inFlight, bodies, answers} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// watch sets the allowances whose bytes in flight are shown.
func (m *Metrics) watch(bodies *Bodies, answers *allowance.Allowance) {
	if m != nil {
		m.bodies.Store(bodies)
		m.answers.Store(answers)
	}
}

func (m *Metrics) begin() {
	if m != nil {
		m.inFlight.Inc()
	}
}

func (m *Metrics) end(method, route string, status int, code string, took time.Duration) {
	if m == nil {
		return
	}
	m.inFlight.Dec()
	// Both labels come from closed sets: callers cannot make series.
	if !slices.Contains(
		[]string{
			http.MethodGet,
			http.MethodHead,
			http.MethodPost,
			http.MethodPut,
			http.MethodPatch,
			http.MethodDelete,
			http.MethodOptions,
		},
		method,
	) {
		method = "other"
	}
	route = cmp.Or(route, "none")
	m.requests.WithLabelValues(method, route, strconv.Itoa(status), code).Inc()
	m.duration.WithLabelValues(method, route).Observe(took.Seconds())
}

// Reads records what calls are shown.
type Reads interface {
	// Open makes the read of a request at a time, zero for now; nil if the reads of the project of the caller are not
	// recorded. The error is service-unavailable while records cannot be stored.
	Open(ctx context.Context, p auth.Principal, request uuid.UUID, at time.Time) (*readlog.Read, error)
}

// recorded serves a call, and records what it shows if its project wants that. A read of the caller of a call in the
// process is that of the call too.
func (e edge) recorded(c echo.Context, r *request, next echo.HandlerFunc) (err error) {
	if e.cfg.Reads == nil || r.principal.Project.Reads == "" || r.route.Writes() {
		return next(c)
	}
	ctx := c.Request().Context()
	if read := readlog.From(ctx); read != nil {
		read.Within(r.id)
		return next(c)
	}
	read, err := e.cfg.Reads.Open(ctx, r.principal, r.id, r.receivedAt)
	if err != nil {
		return err
	}
	answered := false
	defer func() { read.End(answered || c.Response().Committed) }() // also of an answer that breaks off
	c.SetRequest(c.Request().WithContext(readlog.NewContext(ctx, read)))
	if err = next(c); err == nil {
		err = store(c) // what a call in the process took without an answer
	}
	answered = err == nil
	return err
}

// store returns once what an answer shows so far is in the log, if the reads of the project are proved. All that
// writes JSON calls it first.
func store(c echo.Context) error {
	ctx := c.Request().Context()
	return readlog.From(ctx).Store(ctx)
}
