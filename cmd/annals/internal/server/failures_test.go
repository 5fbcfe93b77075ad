package server

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/internal/runtest"
)

// syncBuffer is a buffer that several goroutines write to.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A key that the model refuses is named in the log before the first send, on the operations address and in the
// metrics; so are the sends that fail because of it, and that it works again.
func TestServer_WrongKeyOfModel(t *testing.T) {
	t.Parallel()
	var right atomic.Bool
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !right.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(`{"choices":[{"message":{"content":"{\"memories\":[]}"}}]}`))
	}))
	t.Cleanup(model.Close)
	log := &syncBuffer{}
	h := newHarness(t)
	h.set = func(cfg *Config) {
		cfg.Model.URL, cfg.Model.Name, cfg.Model.Key = model.URL, "small", "wrong-key"
		cfg.OpsAddr = "127.0.0.1:0"
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	h.start()
	ops := "http://" + h.Server.listeners.ops.Addr().String()
	awaitText := func(what string, text func() string, wants ...string) {
		t.Helper()
		runtest.Await(t, what, func() bool {
			got := text()
			for _, want := range wants {
				if !strings.Contains(got, want) {
					return false
				}
			}
			return true
		})
	}
	readyz := func() string { return h.fetch(http.MethodGet, ops+"/readyz", "", "").body }
	awaitText("the log names the setting", log.String, "a server cannot be used", "ANNALS_MODEL_KEY", "status 403")
	awaitText("/readyz names it", readyz, `"status":"ready"`,
		"the model that derives memory cannot be used", "status 403 (ANNALS_MODEL_KEY)")
	awaitText("a metric shows it", h.metrics, `annals_server_up{server="model"} 0`,
		`annals_sends_failed_total{code="content-rejected"} 0`)

	key, _ := h.keys()
	h.send(key, "/ingest", "failed", point{"id": "a", "content": "Ana likes tea."})
	awaitText("the failed send is logged", log.String, "sends failed", "code=content-rejected")
	awaitText("the failed send is counted", h.metrics, `annals_sends_failed_total{code="content-rejected"} 1`)
	awaitText("/readyz shows the failed send", readyz, "1 send failed in the last hour", "status 403")
	if strings.Contains(log.String(), "wrong-key") || strings.Contains(readyz(), "wrong-key") {
		t.Error("the key is shown")
	}
	right.Store(true)
	h.send(key, "/ingest", "completed", point{"id": "b", "content": "Bo likes tea."})
	awaitText("the log says that it works", log.String, "a server is reachable again")
	awaitText("the metric shows it", h.metrics, `annals_server_up{server="model"} 1`)
}

// Anybody reads that sends fail on the address of the API, and not why.
func TestRemarks_AreShortInPublic(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.set = func(cfg *Config) { cfg.Model.URL, cfg.Model.Name = "http://127.0.0.1:1/v1", "small" }
	h.start()
	runtest.Await(t, "the model is shown", func() bool { return len(h.remarks(false).ServersDown) == 1 })
	if got := h.readyz().body; !strings.Contains(got, `"the model that derives memory cannot be used: check ANNALS_MODEL_URL; the log has the cause"`) {
		t.Errorf("readyz: %s", got)
	}
	if got := h.remarks(true).ServersDown[0]; !strings.Contains(got, "(ANNALS_MODEL_URL)") {
		t.Errorf("operators read %q", got)
	}
}

// Failed sends of a code are logged once a minute, with how many there were.
func TestSendFailures_LoggedOnceAMinute(t *testing.T) {
	log := &bytes.Buffer{}
	f := newSendFailures(func(context.Context, string) []string { return nil }, slog.New(slog.NewTextHandler(log, nil)))
	now := time.Date(2026, 5, 12, 9, 0, 0, 0, time.UTC)
	f.now = func() time.Time { return now }
	for range 100 {
		f.failed(t.Context(), ingestion.ModelUnavailable, "the model returned status 401")
		f.failed(t.Context(), ingestion.Internal, "the stored text cannot be read")
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines about two causes:\n%s", n, log)
	}
	now = now.Add(failureLogEvery)
	f.failed(t.Context(), ingestion.ModelUnavailable, "the model returned status 401")
	if !strings.Contains(log.String(), "sends=100 ") {
		t.Errorf("a minute later:\n%s", log)
	}
}
