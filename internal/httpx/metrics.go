package httpx

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/internal/allowance"
)

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
