package server

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
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

const (
	// inventoryEvery is the pause between two inventories. Their cost grows with the files and the audiences.
	inventoryEvery = time.Minute
	// maxFiles bounds the files of an inventory. The sizes of further files are left out.
	maxFiles = 1_000_000
)

// partsOfFolder are the parts of the data folder by the folders in it. The rest is part other.
var partsOfFolder = map[string]string{"log": "log", "recall": "index", "postgres": "postgres", "models": "models"}

// otherPart is what belongs to no part of its own.
const otherPart = "other"

// inventory counts what is stored, each minute.
type inventory struct {
	dir        string
	dataPoints func(context.Context) (int64, error) // nil without projections
	disk       func() (free, required uint64, ok bool)
	now        func() time.Time
	logger     *slog.Logger

	last atomic.Pointer[stored]
}

// stored is what one inventory found.
type stored struct {
	bytes map[string]int64
	// dataPoints is -1 if it is not known.
	dataPoints int64
}

func buildInventory(_ context.Context, s *Server) (adds, error) {
	cfg := s.cfg
	i := &inventory{dir: cfg.Data.Dir, disk: s.backpressure.disk, now: cfg.now, logger: cfg.Logger}
	if cfg.Roles.Has(RoleProjector) {
		i.dataPoints = s.read.work.dataPoints.CountAll
	}
	s.inventory = i
	s.registry.MustRegister(i)
	return adds{watch: []task{{"inventory", i.run}}}, nil
}

// run counts until the context ends.
func (i *inventory) run(ctx context.Context) error {
	for {
		i.count(ctx)
		if !sleep(ctx, inventoryEvery) {
			return nil
		}
	}
}

func (i *inventory) count(ctx context.Context) {
	s := stored{dataPoints: -1}
	var err error
	if s.bytes, err = folderBytes(ctx, i.dir); err != nil {
		i.warn(ctx, "size of the data folder", err)
	}
	if i.dataPoints != nil {
		if s.dataPoints, err = i.dataPoints(ctx); err != nil {
			s.dataPoints = -1
			i.logger.DebugContext(ctx, "data points are not counted", "err", err) // usual before the first start
		}
	}
	i.last.Store(&s)
}

func (i *inventory) warn(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		i.logger.WarnContext(ctx, "inventory failed, will retry", "what", what, "err", err)
	}
}

// folderBytes returns the sizes of the files of a data folder, by its parts. Files that are deleted meanwhile count
// as nothing.
func folderBytes(ctx context.Context, dir string) (map[string]int64, error) {
	bytes, files := map[string]int64{otherPart: 0}, 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !entry.Type().IsRegular():
			return nil
		}
		if files++; files > maxFiles {
			return fs.SkipAll
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		top, _, deeper := strings.Cut(inside, string(filepath.Separator))
		part := partsOfFolder[top]
		if part == "" || !deeper {
			part = otherPart
		}
		bytes[part] += info.Size()
		return nil
	})
	return bytes, err
}

var (
	dataBytesMetric = prometheus.NewDesc("annals_data_bytes",
		"Bytes of the files of the data folder, counted each minute.", []string{"part"}, nil)
	dataPointsMetric = prometheus.NewDesc("annals_data_points", "Live data points, counted each minute.", nil, nil)
	diskFreeMetric   = prometheus.NewDesc("annals_disk_free_bytes",
		"Bytes of the disk of the data folder that can still be written.", nil, nil)
	diskRequiredMetric = prometheus.NewDesc("annals_disk_required_bytes",
		"Bytes of that disk that must be free, or writes are refused.", nil, nil)
	backupAgeMetric = prometheus.NewDesc("annals_backup_age_seconds",
		"Age of the last backup that annals backup made of this data folder.", nil, nil)
)

// Describe implements prometheus.Collector, as that of stateMetrics does.
func (i *inventory) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (i *inventory) Collect(out chan<- prometheus.Metric) {
	gauge := func(of *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, labels...)
	}
	if s := i.last.Load(); s != nil {
		for part, size := range s.bytes {
			gauge(dataBytesMetric, float64(size), part)
		}
		if s.dataPoints >= 0 {
			gauge(dataPointsMetric, float64(s.dataPoints))
		}
	}
	if free, required, ok := i.disk(); ok {
		gauge(diskFreeMetric, float64(free))
		gauge(diskRequiredMetric, float64(required))
	}
	last, ok, err := datafolder.LastBackup(i.dir)
	if err != nil {
		i.logger.Warn("record of the last backup cannot be read", "err", err)
	}
	if ok {
		gauge(backupAgeMetric, max(i.now().Sub(last).Seconds(), 0))
	}
}

// countedLevels are the levels whose lines are counted: what fails in the background is logged with one of them.
var countedLevels = []slog.Level{slog.LevelWarn, slog.LevelError}

// newLogLines makes the counter of the log lines.
func newLogLines() *prometheus.CounterVec {
	lines := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "annals_log_lines_total", Help: "Lines of the log with the levels warn and error.",
	}, []string{"level"})
	for _, level := range countedLevels {
		lines.WithLabelValues(strings.ToLower(level.String()))
	}
	return lines
}

// countingHandler counts lines, and passes them on. It counts also those that the next handler leaves out.
type countingHandler struct {
	slog.Handler
	lines *prometheus.CounterVec
}

// Enabled implements slog.Handler.
func (h countingHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || h.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h countingHandler) Handle(ctx context.Context, r slog.Record) error {
	switch {
	case r.Level >= slog.LevelError:
		h.lines.WithLabelValues("error").Inc()
	case r.Level >= slog.LevelWarn:
		h.lines.WithLabelValues("warn").Inc()
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h countingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return countingHandler{h.Handler.WithAttrs(attrs), h.lines}
}

// WithGroup implements slog.Handler.
func (h countingHandler) WithGroup(name string) slog.Handler {
	return countingHandler{h.Handler.WithGroup(name), h.lines}
}
