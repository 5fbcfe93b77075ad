package server

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// Programs without a session or a key read the documentation of a running service, from wherever they call.
func TestDocs_ArePublic(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newTenant(t)
	for _, c := range []struct{ method, path, body, want string }{
		{http.MethodGet, "/docs", "", "<h1>Documentation</h1>"},
		{http.MethodGet, "/docs/console.md", "", "# The console"},
		{http.MethodGet, "/docs/auth.md", "", "# Register as an agent"},
		{http.MethodGet, "/llms.txt", "", h.urls.Console + "/docs/concepts.md"},
		{http.MethodGet, "/openapi.json", "", `"servers":[{"url":"` + h.urls.API + `"}]`},
		{http.MethodPost, "/docs/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call",
			"params":{"name":"read_page","arguments":{"id":"concepts"}}}`, h.urls.Console + "/docs/concepts"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, h.urls.Console+c.path, strings.NewReader(c.body))
		runtest.Must(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Origin", "https://elsewhere.example")
		res, err := http.DefaultClient.Do(req)
		runtest.Must(t, err)
		body, err := io.ReadAll(res.Body)
		runtest.Must(t, err)
		runtest.Must(t, res.Body.Close())
		if res.StatusCode != http.StatusOK || !strings.Contains(string(body), c.want) {
			t.Errorf("%s %s: %d %.300s", c.method, c.path, res.StatusCode, body)
		}
	}
}
