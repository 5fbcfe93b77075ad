package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
)

// servesProfiles checks where the profiler is.
func (h *harness) servesProfiles(ops string) {
	h.t.Helper()
	for url, want := range map[string]int{
		h.urls.API + "/debug/pprof/": 404, h.urls.API + "/debug/pprof/heap": 404,
		h.urls.Console + "/debug/pprof/": 404, h.urls.Console + "/debug/pprof/heap": 404,
		ops + "/debug/pprof/": 200, ops + "/debug/pprof/goroutine?debug=1": 200, ops + "/debug/pprof/symbol": 200,
		ops + "/debug/pprof/cmdline": 404, ops + "/debug/pprof/none": 404,
		ops + "/metrics": 200, ops + "/readyz": 200,
	} {
		h.fetch(http.MethodGet, url, "", "").want(h.t, want)
	}
}

// servesOperation checks what the address of operation serves, with profiles, and that no other address does.
func (h *harness) servesOperation() {
	t := h.t
	t.Helper()
	ops := "http://" + h.Server.listeners.ops.Addr().String()
	h.servesProfiles(ops)
	for url, want := range map[string]struct {
		status int
		says   string
	}{
		h.urls.API + "/healthz":     {200, "ok"},
		h.urls.API + "/readyz":      {404, "not-found"},
		h.urls.API + "/metrics":     {404, "not-found"},
		h.urls.Console + "/readyz":  {404, "not-found"},
		h.urls.Console + "/metrics": {404, "not-found"},
		h.urls.API + "/":            {200, `<a href="/openapi.yaml">`},
		h.urls.Console + "/":        {200, "Sign in"},
		ops + "/":                   {200, `<a href="/metrics">`},
		ops + "/healthz":            {200, "ok"},
		ops + "/readyz":             {200, "ready"},
		ops + "/metrics":            {200, "annals_http_requests_in_flight"},
		ops + "/api/v1/usage":       {404, "not-found"},
	} {
		h.fetch(http.MethodGet, url, "", "").want(t, want.status, want.says)
	}
	is, err := operatorapi.ServiceStatus.Call(t.Context(), operatorapi.Dial(h.dir), operatorapi.None{})
	runtest.Must(t, err)
	if is.API != h.urls.API || is.MCP != h.urls.Console+"/mcp" || is.Health != ops || is.PID != os.Getpid() ||
		!filepath.IsAbs(is.DataDir) || len(is.Projections) == 0 || len(is.NotReady) > 0 || is.LastBackup != nil {
		t.Errorf("the operator sees %+v", is)
	}
}

// metricRow is what docs/metrics.md states about a metric.
type metricRow struct {
	kind   string
	labels []string
}

// What /metrics exposes has the types and the labels that docs/metrics.md states. They show what is stored, and
// /readyz a start.
func TestMetrics_AsDocumented(t *testing.T) {
	unraced(t)
	t.Parallel()
	rows := metricRows(t)
	h := newHarness(t)
	h.set = func(cfg *Config) { cfg.MinFreeDisk = 1 << 20 }
	h.start()
	h.sendTeaAndRecall()
	exposed := 0
	for line := range strings.Lines(h.metrics()) {
		line = strings.TrimSpace(line)
		if kind, ok := strings.CutPrefix(line, "# TYPE annals_"); ok {
			name, kind, _ := strings.Cut(kind, " ")
			if exposed++; rows["annals_"+name].kind != kind {
				t.Errorf("annals_%s is a %s, docs/metrics.md states %q", name, kind, rows["annals_"+name].kind)
			}
		}
		if !strings.HasPrefix(line, "annals_") {
			continue
		}
		name, labels := sample(line)
		row, ok := rows[name]
		if !ok {
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
			row = rows[name]
			labels = slices.DeleteFunc(labels, func(label string) bool { return label == "le" })
		}
		slices.Sort(row.labels)
		slices.Sort(labels)
		if !slices.Equal(row.labels, labels) {
			t.Errorf("%s has the labels %v, docs/metrics.md states %v", name, labels, row.labels)
		}
	}
	if exposed < 15 {
		t.Errorf("only %d metrics are exposed", exposed)
	}
	// A ready service without load.
	h.exposes("annals_ready 1", `annals_console_places{class="known-browsers"} 0`, `annals_console_bytes{class="forms"} 0`,
		`annals_console_waiting{class="unread"} 0`, `annals_console_refused_total{class="exports"} 0`)
	h.metersWhatIsStored()
	h.showsTheStart()
}

// sample returns the name and the labels of a line such as `name{a="x",b="y"} 1`.
func sample(line string) (name string, labels []string) {
	series, _, _ := strings.Cut(line, " ")
	name, rest, ok := strings.Cut(series, "{")
	for ok {
		var label string
		if label, rest, ok = strings.Cut(rest, `="`); ok {
			labels = append(labels, strings.TrimPrefix(label, ","))
			_, rest, _ = strings.Cut(rest, `"`)
		}
	}
	return name, labels
}

func metricRows(t *testing.T) map[string]metricRow {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "metrics.md"))
	runtest.Must(t, err)
	rows := map[string]metricRow{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || !strings.Contains(cells[1], "`annals_") {
			continue
		}
		row := metricRow{kind: strings.TrimSpace(cells[2])}
		for _, label := range strings.Split(cells[3], ",") {
			if label = strings.Trim(label, " `"); label != "" {
				row.labels = append(row.labels, label)
			}
		}
		rows[strings.Trim(cells[1], " `")] = row
	}
	return rows
}

// worksWithoutCalls checks that background work continues while calls use all of their connections: leases are renewed,
// events are applied, counted recalls are appended to the log, and pending erasures are found.
func (h *harness) worksWithoutCalls(pass func(time.Duration)) {
	t := h.t
	t.Helper()
	none, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := h.storage.db.Ping(none); err == nil {
		t.Fatal("a connection for calls is left")
	}
	turns := func() map[string]time.Time {
		until := map[string]time.Time{}
		for _, name := range h.read.runtime.Names() {
			var at time.Time
			runtest.Must(t, h.storage.work.QueryRow(t.Context(), `select until from `+name+`.checkpoint`).Scan(&at))
			until[name] = at
		}
		return until
	}
	before := turns()
	runtest.Await(t, "every turn is prolonged", func() bool {
		for name, until := range turns() {
			if !until.After(before[name]) {
				return false
			}
		}
		return true
	})
	if err := h.background.metering.Flush(t.Context()); err != nil || h.count("usage.charged.v1") != 1 {
		t.Errorf("recalls are not taken to the log: %v", err)
	}
	head, err := h.storage.store.Head(t.Context())
	runtest.Must(t, err)
	if err := h.read.runtime.BackgroundWaiter().Wait(t.Context(), head, datapoints.Name); err != nil {
		t.Errorf("events are not applied: %v", err)
	}
	if _, err := h.background.finisher.Pending(t.Context()); err != nil {
		t.Errorf("what is to be erased is not found: %v", err)
	}
	pass(memoTime)
	h.exposes(`annals_postgres_connections{pool="calls",state="in-use"} 32`,
		`annals_postgres_connections_max{pool="work"} 24`,
		"annals_metering_oldest_seconds 0", "annals_deletions_stuck 0", "annals_fanouts_stuck 0")
}

// exposes checks that /metrics has lines.
func (h *harness) exposes(lines ...string) {
	h.t.Helper()
	text := h.metrics()
	for _, line := range lines {
		if !strings.Contains(text, line+"\n") {
			h.t.Errorf("/metrics lacks %s", line)
		}
	}
}

// metrics returns the text of /metrics as of now: its route answers from the last second.
func (h *harness) metrics() string {
	h.t.Helper()
	got := httptest.NewRecorder()
	promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{}).
		ServeHTTP(got, httptest.NewRequestWithContext(h.t.Context(), http.MethodGet, "/metrics", http.NoBody))
	return got.Body.String()
}

func TestFolderBytes_ByPart(t *testing.T) {
	unraced(t)
	dir := t.TempDir()
	for name, size := range map[string]int{
		"log/a": 10, "log/deep/b": 5, "recall/c": 7, "postgres/data/d": 3, "log.txt": 2, "unknown/e": 4, "hash.key": 1,
	} {
		path := filepath.Join(dir, name)
		runtest.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		runtest.Must(t, os.WriteFile(path, make([]byte, size), 0o600))
	}
	got, err := folderBytes(t.Context(), dir)
	if err != nil || got["log"] != 15 || got["index"] != 7 || got["postgres"] != 3 || got[otherPart] != 7 {
		t.Errorf("bytes %v, %v", got, err)
	}
	if got, err = folderBytes(t.Context(), filepath.Join(dir, "missing")); err != nil || got[otherPart] != 0 {
		t.Errorf("a folder that is missing: %v, %v", got, err)
	}
}

// metersWhatIsStored checks that what is stored is in the metrics, and a backup is once it was made.
func (h *harness) metersWhatIsStored() {
	t := h.t
	t.Helper()
	h.inventory.count(t.Context())
	got := h.metrics()
	for _, want := range []string{
		"\nannals_data_points 1\n", `annals_data_bytes{part="log"} `, "\nannals_disk_free_bytes ",
		"\nannals_disk_required_bytes 1.34217728e+08\n", "\nannals_node_appends_total ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the metrics lack %q", want)
		}
	}
	if strings.Contains(got, "annals_backup_age_seconds ") {
		t.Error("the metrics show a backup before there is one")
	}
	_, err := operatorapi.MakeBackup.Call(t.Context(), operatorapi.Dial(h.dir),
		operatorapi.BackupRequest{Dir: filepath.Join(t.TempDir(), "backup")})
	runtest.Must(t, err)
	if got = h.metrics(); !strings.Contains(got, "\nannals_backup_age_seconds ") {
		t.Error("the metrics do not show the backup")
	}
}

// Lines of warnings and errors are counted, also those of loggers with attributes, and those that the level leaves out.
func TestLogLines_AreCounted(t *testing.T) {
	lines, out := newLogLines(), &bytes.Buffer{}
	logger := slog.New(countingHandler{slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelError}), lines})
	logger.InfoContext(t.Context(), "a")
	logger.With("k", "v").WarnContext(t.Context(), "b")
	logger.WithGroup("g").ErrorContext(t.Context(), "c")
	for level, want := range map[string]float64{"warn": 1, "error": 1} {
		if got := testutil.ToFloat64(lines.WithLabelValues(level)); got != want {
			t.Errorf("%s: %v lines", level, got)
		}
	}
	if strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), "msg=c") {
		t.Errorf("logged:\n%s", out)
	}
}

// startProfiled serves handlers with a short write timeout.
func startProfiled(t *testing.T, handler http.Handler) (url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.WriteTimeout = 500 * time.Millisecond // a busy machine must begin within it
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// A profile lasts as long as its caller asks for, up to the bound, whatever the write timeout of the server.
func TestProfiler_CPUProfileIsWhole(t *testing.T) {
	if longestProfile <= 30*time.Second {
		t.Errorf("a profile of 30 s is cut after %v", longestProfile)
	}
	log := slog.New(slog.DiscardHandler)
	for name, c := range map[string]struct {
		longest time.Duration
		seconds string
	}{
		"longer than the write timeout": {longestProfile, "1"}, "longer than the bound": {100 * time.Millisecond, "3600"},
	} {
		url := startProfiled(t, profiler{log, c.longest}.withOperation(http.NotFoundHandler()))
		res, err := http.Get(url + "/debug/pprof/profile?seconds=" + c.seconds)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		profile, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK || !bytes.HasPrefix(profile, []byte{0x1f, 0x8b}) {
			t.Errorf("%s: %d %v, %.100q", name, res.StatusCode, err, profile)
		}
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestProfiler_PanicAbortsTheCallOnly(t *testing.T) {
	var logged runtest.Output
	p := profiler{slog.New(slog.NewTextHandler(&logged, nil)), longestProfile}
	mux := http.NewServeMux()
	mux.Handle("/", p.withOperation(http.NotFoundHandler()))
	mux.Handle("/panics", p.guard(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "the first bytes")
		panic("broken profile")
	}))
	url := startProfiled(t, mux)
	if res, err := http.Get(url + "/panics"); err == nil {
		_, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err == nil {
			t.Error("the answer looks complete")
		}
	}
	if !strings.Contains(logged.String(), "broken profile") {
		t.Errorf("logged %q", logged.String())
	}
	res, err := http.Get(url + "/debug/pprof/symbol")
	runtest.Must(t, err)
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		t.Errorf("after the panic: %d", res.StatusCode)
	}
}

// Addresses to name are read up to the bound of a body.
func TestProfiler_LongBody(t *testing.T) {
	read := make(chan int, 1)
	p := profiler{slog.New(slog.DiscardHandler), longestProfile}
	guarded := p.guard(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // an error for what is longer
		read <- len(body)
	})
	for sent, want := range map[int]int{maxProfileBody: maxProfileBody, maxProfileBody + 1: maxProfileBody} {
		body := strings.NewReader(strings.Repeat("a", sent))
		guarded.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body))
		if got := <-read; got != want {
			t.Errorf("%d bytes are sent, and %d read", sent, got)
		}
	}
}
