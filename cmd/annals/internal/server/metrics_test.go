package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
)

// While calls use all of their connections, background work continues: leases are renewed, events
// are applied, counted recalls are appended to the log, and pending erasures are found.
func TestServer_CallsUseAllTheirConnections(t *testing.T) {
	h := newHarness(t)
	h.start()
	h.sendTeaAndRecall()
	for range callConnections {
		conn, err := h.storage.db.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
	}
	none, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := h.storage.db.Ping(none); err == nil {
		t.Fatal("a connection for calls is left")
	}

	turns := func() map[string]time.Time {
		until := map[string]time.Time{}
		for _, name := range h.read.runtime.Names() {
			var at time.Time
			if err := h.storage.work.QueryRow(t.Context(), `select until from `+name+`.checkpoint`).Scan(&at); err != nil {
				t.Fatal(err)
			}
			until[name] = at
		}
		return until
	}
	before := turns()
	runtest.Await(h.t, "every turn is prolonged", func() bool {
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
	if err != nil {
		t.Fatal(err)
	}
	if err := h.read.runtime.BackgroundWaiter().Wait(t.Context(), head, datapoints.Name); err != nil {
		t.Errorf("events are not applied: %v", err)
	}
	if _, err := h.background.finisher.Pending(t.Context()); err != nil {
		t.Errorf("what is to be erased is not found: %v", err)
	}
	text := h.metrics()
	for _, line := range []string{
		`annals_postgres_connections{pool="calls",state="in-use"} 32`, `annals_postgres_connections_max{pool="work"} 24`,
		"annals_metering_oldest_seconds 0", "annals_deletions_stuck 0", "annals_fanouts_stuck 0",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("/metrics lacks %s", line)
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
