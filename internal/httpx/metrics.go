package httpx

import (
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts the requests of one HTTP surface. A nil *Metrics counts nothing.
type Metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
	bodies   prometheus.GaugeFunc
	// allowance is what bodies reads, once there is one.
	allowance atomic.Pointer[Bodies]
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
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "annals_http_requests_in_flight", Help: "Requests being served."}),
	}
	m.bodies = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "annals_http_body_bytes_in_flight", Help: "Bytes of request bodies that are taken of their allowance.",
	}, func() float64 {
		if b := m.allowance.Load(); b != nil {
			return float64(b.InFlight())
		}
		return 0
	})
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.inFlight, m.bodies} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// watch tells whose bytes in flight to show.
func (m *Metrics) watch(b *Bodies) {
	if m != nil {
		m.allowance.Store(b)
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
	if !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}, method) {
		method = "other"
	}
	if route == "" {
		route = "none"
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status), code).Inc()
	m.duration.WithLabelValues(method, route).Observe(took.Seconds())
}
