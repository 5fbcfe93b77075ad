package httpx_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/httpx"
)

// Each address names the one that serves what was asked for.
func TestNotFound_NamesTheOtherAddress(t *testing.T) {
	cfg := httpx.Config{Log: slog.New(slog.DiscardHandler), Keys: apitest.Keys{}, URLs: apitest.URLs}
	console := httpx.NewConsole(cfg)
	console.HandleSite(func(w http.ResponseWriter, _ *http.Request, _ *httpx.PageNote) error {
		w.WriteHeader(http.StatusTeapot)
		return nil
	})
	for _, c := range []struct {
		handler      http.Handler
		method, path string
		want         string
	}{
		{httpx.New(cfg), http.MethodPost, "/mcp", apitest.URLs.Console + "/mcp"},
		{httpx.New(cfg), http.MethodGet, "/mcp/read", apitest.URLs.Console + "/mcp/read"},
		{console, http.MethodPost, "/api/v1/recall", apitest.URLs.API + "/api/v1"},
		{console, http.MethodGet, "/api/v1", apitest.URLs.API + "/api/v1"},
	} {
		w := httptest.NewRecorder()
		c.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil))
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), c.want+`"`) {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}
}
