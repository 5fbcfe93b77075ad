package server

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/recallindex/elastic"
	"github.com/annals-project/annals/projections/runner"
)

// projectionMetrics returns hooks that count what the projectors do. They call keysChanged after
// each page that changes a key.
func projectionMetrics(registry prometheus.Registerer, keysChanged func()) runner.Hooks {
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "annals_projection_events_total", Help: "Events of the log that a projection has passed.",
	}, []string{"projection"})
	pages := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "annals_projection_page_seconds", Help: "Time that a page took from its arrival to its commit.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
	}, []string{"projection"})
	stopped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "annals_projection_stopped_total", Help: "How often a projection stopped at an event that it cannot apply.",
	}, []string{"projection"})
	registry.MustRegister(events, pages, stopped)
	return runner.Hooks{
		Page: func(name string, passed, applied int, took time.Duration) {
			if name == access.Name && applied > 0 {
				keysChanged()
			}
			events.WithLabelValues(name).Add(float64(passed))
			pages.WithLabelValues(name).Observe(took.Seconds())
		},
		Stopped: func(name string) { stopped.WithLabelValues(name).Inc() },
	}
}

var (
	readyMetric   = prometheus.NewDesc("annals_ready", "1 while /readyz answers 200.", nil, nil)
	refusedMetric = prometheus.NewDesc("annals_writes_refused",
		"1 while writes are refused: projections lag far, more is sent than can be derived, the disk is nearly full, "+
			"or the event store cannot write, since its disk is full or failed.", []string{"why"}, nil)
	serverUpMetric = prometheus.NewDesc("annals_server_up",
		"1 while a server that the service calls can be used, as last checked: the model, the endpoint for embeddings, the "+
			"Elasticsearch.", []string{"server"}, nil)
	setAsideMetric = prometheus.NewDesc("annals_events_set_aside", "How many events projections ignore.", nil, nil)
	openMetric     = prometheus.NewDesc("annals_open_age_seconds",
		"Age of the oldest item that waits for derivation, and of the oldest captured send that is not searchable.",
		[]string{"for"}, nil)
	lagMetric = prometheus.NewDesc("annals_projection_lag",
		"Difference between the head of the log and the checkpoint of a projection, in positions.", []string{"projection"}, nil)
	stallMetric = prometheus.NewDesc("annals_feed_stalls_total",
		"How often the subscription to the log stalled while the log grew, and was restarted.", nil, nil)
	nodeAppendsMetric = prometheus.NewDesc("annals_node_appends_total",
		"Appends that the embedded event store has written since its start.", nil, nil)
	nodeEventsMetric = prometheus.NewDesc("annals_node_events_total",
		"Events that the embedded event store has written since its start.", nil, nil)
	nodeFsyncsMetric = prometheus.NewDesc("annals_node_fsyncs_total",
		"Group commits of the embedded event store since its start.", nil, nil)
	connectionsMetric = prometheus.NewDesc("annals_postgres_connections",
		"Connections to Postgres of calls, of background work, of checks and to the replica, in use and idle.", []string{"pool", "state"}, nil)
	maxConnectionsMetric = prometheus.NewDesc("annals_postgres_connections_max",
		"The most connections that a pool opens.", []string{"pool"}, nil)
	chargeMetric = prometheus.NewDesc("annals_metering_oldest_seconds",
		"Age of the oldest counted recalls that are not in the log, at most about 15 minutes. 0 for none.", nil, nil)
	erasureMetric = prometheus.NewDesc("annals_erasure_age_seconds",
		"Age of the oldest deletion that is not erased from the disks. 0 for none.", nil, nil)
	stuckMetric = prometheus.NewDesc("annals_deletions_stuck",
		"Committed deletions that cannot be completed: what they delete is still served. And erasures that the event store "+
			"denies its user.", nil, nil)
	damagedMetric = prometheus.NewDesc("annals_streams_damaged",
		"Streams of the service that somebody else deleted, truncated or aged in the event store, at most 100.", nil, nil)
	stuckFanOutMetric = prometheus.NewDesc("annals_fanouts_stuck",
		"Committed batches and bulk writes that cannot be completed. Their tries become rare.", nil, nil)
	storeConnectionsMetric = prometheus.NewDesc("annals_eventstore_connections_total",
		"Connections to the event store that were made, that were given up, and that went to another server than the one "+
			"before: another leader.", []string{"outcome"}, nil)
	elasticRequestsMetric = prometheus.NewDesc("annals_elasticsearch_requests_total",
		"Requests to Elasticsearch: answered, refused by it, failed, and not sent since several before them failed.",
		[]string{"outcome"}, nil)
	elasticRepeatedMetric = prometheus.NewDesc("annals_elasticsearch_repeated_documents_total",
		"Documents that Elasticsearch had no room for, and that were sent again.", nil, nil)
	elasticPausedMetric = prometheus.NewDesc("annals_elasticsearch_paused",
		"1 while no request is sent to Elasticsearch, because several in a row failed.", nil, nil)
	placesMetric = prometheus.NewDesc("annals_console_places",
		"Places that requests of the console's address hold.", []string{"class"}, nil)
	placeBytesMetric = prometheus.NewDesc("annals_console_bytes",
		"Bytes of bodies and answers that requests of the console's address hold.", []string{"class"}, nil)
	placesWaitingMetric = prometheus.NewDesc("annals_console_waiting",
		"Requests of the console's address that wait for a place or bytes.", []string{"class"}, nil)
	placesRefusedMetric = prometheus.NewDesc("annals_console_refused_total",
		"Requests of the console's address that found no place or bytes in time.", []string{"class"}, nil)
	waitsMetric = prometheus.NewDesc("annals_postgres_connection_waits_total",
		"How often a caller waited for a connection, since all were in use or none was open.", []string{"pool"}, nil)
)

// stateMetrics reads the state of the parts when Prometheus collects.
type stateMetrics struct{ *Server }

// Describe implements prometheus.Collector. It describes nothing: the registry checks what is collected.
func (m *stateMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *stateMetrics) Collect(out chan<- prometheus.Metric) {
	conditions, now := m.health.conditions(context.Background()), m.health.reading.get()
	gauge := func(of *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, labels...)
	}
	counter := func(of *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(of, prometheus.CounterValue, value, labels...)
	}
	if m.cfg.Roles.Has(RoleProjector) {
		for _, s := range now.projections {
			if s.IsUnread {
				continue
			}
			gauge(lagMetric, float64(s.Lag()), s.Name)
		}
	}
	open := m.backpressure.state().open
	gauge(readyMetric, oneIf(conditions.IsReady()))
	for _, server := range m.probes.all() {
		gauge(serverUpMetric, oneIf(!conditions.Has(condition.ServersDown, server.Label)), server.Label)
	}
	for _, of := range []cause{behind, waiting, diskFull, logRefused} {
		gauge(refusedMetric, oneIf(conditions.Has(condition.WritesRefused, string(of))), string(of))
	}
	gauge(setAsideMetric, float64(conditions.Count(condition.SetAside)))
	gauge(openMetric, m.backpressure.since(open.Item).Seconds(), "derivation")
	gauge(openMetric, m.backpressure.since(open.Captured).Seconds(), "index")
	gauge(erasureMetric, m.backpressure.since(now.erasing).Seconds())
	gauge(stuckMetric, float64(conditions.Count(deletionPart)+conditions.Count(condition.ErasureDenied)))
	gauge(damagedMetric, float64(conditions.Count(condition.StreamsDamaged)))
	gauge(stuckFanOutMetric, float64(m.stuckFanOuts()))
	counter(stallMetric, float64(m.read.runtime.FeedStalls()))
	if m.storage.node != nil {
		stats := m.storage.node.Stats()
		counter(nodeAppendsMetric, float64(stats.Appends))
		counter(nodeEventsMetric, float64(stats.Events))
		counter(nodeFsyncsMetric, float64(stats.Fsyncs))
	}
	m.collectServers(counter, gauge)
	if m.site != nil {
		for _, of := range m.site.Shared() {
			held := placesMetric
			if of.Bytes {
				held = placeBytesMetric
			}
			gauge(held, float64(of.InUse()), of.Class)
			gauge(placesWaitingMetric, float64(of.Waiting()), of.Class)
			counter(placesRefusedMetric, float64(of.Refused()), of.Class)
		}
	}
	pools := map[string]*pgxpool.Stat{
		"calls": m.storage.db.Stat(), "work": m.storage.work.Stat(), "checks": m.storage.checks.Stat(),
	}
	if m.storage.replica != nil {
		pools["replica"] = m.storage.replica.Stat()
	}
	for name, s := range pools {
		gauge(connectionsMetric, float64(s.AcquiredConns()), name, "in-use")
		gauge(connectionsMetric, float64(s.IdleConns()), name, "idle")
		gauge(maxConnectionsMetric, float64(s.MaxConns()), name)
		counter(waitsMetric, float64(s.EmptyAcquireCount()), name)
	}
	if now.charged != nil {
		gauge(chargeMetric, now.charged.Seconds())
	}
}

// collectServers collects what the clients of the event store and of Elasticsearch count.
func (m *stateMetrics) collectServers(counter, gauge func(of *prometheus.Desc, value float64, labels ...string)) {
	store := m.storage.store.Stats()
	counter(storeConnectionsMetric, float64(store.Connected), "made")
	counter(storeConnectionsMetric, float64(store.GivenUp), "given-up")
	counter(storeConnectionsMetric, float64(store.Moved), "moved")
	index, is := m.storage.index.(*elastic.Index)
	if !is {
		return
	}
	stats := index.Stats()
	counter(elasticRequestsMetric, float64(stats.Answered), "answered")
	counter(elasticRequestsMetric, float64(stats.Refused), "refused")
	counter(elasticRequestsMetric, float64(stats.Failed), "failed")
	counter(elasticRequestsMetric, float64(stats.NotSent), "not-sent")
	counter(elasticRepeatedMetric, float64(stats.Repeated))
	gauge(elasticPausedMetric, oneIf(stats.Paused))
}

// oneIf is the value of a metric that is 1 while something is true.
func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
