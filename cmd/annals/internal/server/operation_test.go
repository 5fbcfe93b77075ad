package server

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/internal/runtest"
)

func TestServer_Profiler(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.set = func(s *Config) { s.OpsAddr, s.Profile = "127.0.0.1:0", true }
	h.start()
	ops := "http://" + h.Server.listeners.ops.Addr().String()
	for url, want := range map[string]int{
		h.urls.API + "/debug/pprof/": 404, h.urls.API + "/debug/pprof/heap": 404,
		h.urls.Console + "/debug/pprof/": 404, h.urls.Console + "/debug/pprof/heap": 404,
		ops + "/debug/pprof/": 200, ops + "/debug/pprof/goroutine?debug=1": 200, ops + "/debug/pprof/symbol": 200,
		ops + "/debug/pprof/cmdline": 404, ops + "/debug/pprof/none": 404,
		ops + "/metrics": 200, ops + "/readyz": 200,
	} {
		if got := h.fetch(http.MethodGet, url, "", ""); got.status != want {
			t.Errorf("%s: %d %.200s, want %d", url, got.status, got.body, want)
		}
	}
}

// servesOperation checks what the address of operation serves, and that no other address does.
func (h *harness) servesOperation() {
	t := h.t
	t.Helper()
	ops := "http://" + h.Server.listeners.ops.Addr().String()
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
		ops + "/debug/pprof/":       {404, "not-found"},
		ops + "/api/v1/usage":       {404, "not-found"},
	} {
		if got := h.fetch(http.MethodGet, url, "", ""); got.status != want.status || !strings.Contains(got.body, want.says) {
			t.Errorf("%s: %d %.200s, want %d with %q", url, got.status, got.body, want.status, want.says)
		}
	}
	is, err := operatorapi.ServiceStatus.Call(t.Context(), operatorapi.Dial(h.dir), operatorapi.None{})
	runtest.Must(t, err)
	if is.API != h.urls.API || is.MCP != h.urls.Console+"/mcp" || is.Health != ops || is.PID != os.Getpid() ||
		!filepath.IsAbs(is.DataDir) || len(is.Projections) == 0 || len(is.NotReady) > 0 || is.LastBackup != nil {
		t.Errorf("the operator sees %+v", is)
	}
}
