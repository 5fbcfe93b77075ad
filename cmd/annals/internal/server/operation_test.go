package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestServer_OpsAddress(t *testing.T) {
	t.Parallel()
	h := &harness{t: t, dir: t.TempDir(), set: func(s *Config) { s.OpsAddr = "127.0.0.1:0" }}
	h.start()
	get := func(url string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		data, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(data)
	}
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
		ops + "/healthz":            {200, "ok"},
		ops + "/readyz":             {200, "ready"},
		ops + "/metrics":            {200, "annals_http_requests_in_flight"},
		ops + "/api/v1/usage":       {404, "not-found"},
	} {
		if status, body := get(url); status != want.status || !strings.Contains(body, want.says) {
			t.Errorf("%s: %d %.200s, want %d with %q", url, status, body, want.status, want.says)
		}
	}
	// The public reason must not contain the error of the database.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	found := false
	for _, part := range h.health.notReady(ctx) {
		if part.Part == "postgres" {
			found = true
			if strings.Contains(part.Reason, "context") || !strings.Contains(part.Cause, "context") {
				t.Errorf("reason %q, cause %q", part.Reason, part.Cause)
			}
		}
	}
	if !found {
		t.Error("a database that does not answer is not named")
	}
}
