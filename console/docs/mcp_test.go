package docs_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/internal/runtest"
)

// connect connects the SDK's client, which speaks the newest version.
func (l *library) connect() *mcp.ClientSession {
	l.t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(l.t.Context(), &mcp.StreamableClientTransport{Endpoint: l.url + "/docs/mcp"}, nil)
	runtest.Must(l.t, err)
	l.t.Cleanup(func() { _ = session.Close() })
	return session
}

// call calls a tool, and returns its one text and its structure.
func (l *library) call(
	s *mcp.ClientSession, tool string, in map[string]any,
) (text string, structure map[string]any, failed bool) {
	l.t.Helper()
	got, err := s.CallTool(l.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: in})
	runtest.Must(l.t, err)
	if len(got.Content) != 1 {
		l.t.Fatalf("%s answers %d items", tool, len(got.Content))
	}
	if item, ok := got.Content[0].(*mcp.TextContent); ok {
		text = item.Text
	}
	structure, _ = got.StructuredContent.(map[string]any)
	if size := len(text) + len(raw(l.t, structure)); size > 100_000 {
		l.t.Errorf("%s %v answers %d bytes", tool, in, size)
	}
	return text, structure, got.IsError
}

func raw(t *testing.T, value any) string {
	t.Helper()
	body, err := json.Marshal(value)
	runtest.Must(t, err)
	return string(body)
}

func TestMCP_Tools(t *testing.T) {
	t.Parallel()
	l := start(t)
	s := l.connect()
	tools, err := s.ListTools(t.Context(), nil)
	runtest.Must(t, err)
	if len(tools.Tools) != 5 || tools.CacheScope != "public" || tools.TTLMs != 3_600_000 {
		t.Errorf("%d tools, kept %s for %d ms", len(tools.Tools), tools.CacheScope, tools.TTLMs)
	}
	for _, tool := range tools.Tools {
		if tool.Annotations == nil || !tool.Annotations.ReadOnlyHint || tool.Title == "" || tool.Description == "" {
			t.Errorf("%s: %+v", tool.Name, tool.Annotations)
		}
	}

	text, found, _ := l.call(s, "search_docs", map[string]any{"query": "idempotency key", "limit": 2})
	results, _ := found["results"].([]any)
	if len(results) != 2 || !strings.Contains(text, "(id ") {
		t.Fatalf("%s %v", text, found)
	}
	for _, result := range results {
		hit, _ := result.(map[string]any)
		if page, _, failed := l.call(s, "read_page", map[string]any{"id": hit["id"]}); failed || len(page) < 20 {
			t.Errorf("%v is read as %.200s", hit, page)
		}
	}
	if _, many, _ := l.call(s, "search_docs", map[string]any{"query": "recall", "limit": 1000}); len(many["results"].([]any)) != 20 {
		t.Errorf("%d results", len(many["results"].([]any)))
	}
	if text, none, _ := l.call(s, "search_docs", map[string]any{"query": "qqqzzz"}); raw(t, none) != `{"results":[]}` || text == "" {
		t.Errorf("%s %v", text, none)
	}

	_, all, _ := l.call(s, "list_pages", nil)
	pages, _ := all["pages"].([]any)
	if len(pages) < 35 {
		t.Errorf("%d pages", len(pages))
	}
	for _, page := range pages {
		listed, _ := page.(map[string]any)
		l.readThrough(s, listed["id"])
	}
	for _, id := range []string{"none", "", "integrate#none", strings.Repeat("x", 10_000), "../../go.mod"} {
		if text, _, failed := l.call(s, "read_page", map[string]any{"id": id}); !failed || len(text) > 1000 {
			t.Errorf("page %.20q: %.300s", id, text)
		}
		l.clock.Add(int64(time.Minute))
	}
}

// readThrough reads a page to its end, and checks that nothing of it is left out.
func (l *library) readThrough(s *mcp.ClientSession, id any) {
	l.t.Helper()
	whole := l.get("/docs/" + id.(string) + ".md").body
	read, next := 0, id
	for next != nil {
		l.clock.Add(int64(time.Minute))
		_, page, failed := l.call(s, "read_page", map[string]any{"id": next})
		text, _ := page["text"].(string)
		if failed || !strings.Contains(whole, text) {
			l.t.Fatalf("%v: %.300s", next, text)
		}
		if strings.Contains(text, "](../") || strings.Contains(text, ".md)") && !strings.Contains(text, consoleURL) {
			l.t.Errorf("%v has links that lead nowhere", next)
		}
		read += len(text)
		if next = page["next"]; read > 10*len(whole) {
			l.t.Fatalf("%v has no end", id)
		}
	}
	if read < len(whole) {
		l.t.Errorf("%v has %d bytes, and %d were read", id, len(whole), read)
	}
}

// Clients that know search and fetch want one text of JSON in each answer.
func TestMCP_Aliases(t *testing.T) {
	t.Parallel()
	l := start(t)
	s := l.connect()
	text, structure, _ := l.call(s, "search", map[string]any{"query": "xylophone"})
	if want := `{"results":[{"id":"auth","title":"Register","url":"` + consoleURL + `/docs/auth"}]}`; text != want || structure != nil {
		t.Errorf("%s, want %s; %v", text, want, structure)
	}
	text, structure, _ = l.call(s, "fetch", map[string]any{"id": "auth"})
	var page struct {
		ID, Title, Text, URL string
		Metadata             map[string]string
	}
	runtest.Must(t, json.Unmarshal([]byte(text), &page))
	if page.ID != "auth" || page.Title != "Register" || page.URL != consoleURL+"/docs/auth" || structure != nil ||
		!strings.Contains(page.Text, "("+consoleURL+"/docs/limits.md)") || page.Metadata == nil {
		t.Errorf("%s", text)
	}
	if _, _, failed := l.call(s, "fetch", map[string]any{"id": "none"}); !failed {
		t.Error("a page that is not there is fetched")
	}
}

// post sends a message as clients do that speak an older version.
func (l *library) post(body string, headers ...string) answer {
	l.t.Helper()
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, l.url+"/docs/mcp", strings.NewReader(body))
	runtest.Must(l.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	runtest.Must(l.t, err)
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	runtest.Must(l.t, err)
	return answer{res.StatusCode, res.Header, string(got)}
}

func TestMCP_OlderVersions(t *testing.T) {
	t.Parallel()
	l := start(t)
	for _, version := range []string{"2025-06-18", "2025-11-25"} {
		got := l.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version +
			`","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
		if got.status != http.StatusOK || !strings.Contains(got.body, `"protocolVersion":"`+version+`"`) {
			t.Errorf("%s: %d %s", version, got.status, got.body)
		}
		got = l.post(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search_docs","arguments":{"query":"audience"}}}`,
			"MCP-Protocol-Version", version, "Mcp-Session-Id", "of-another-process", "Origin", "https://elsewhere.example")
		if got.status != http.StatusOK || !strings.Contains(got.body, "concepts#identity-audience") ||
			got.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %d %s", version, got.status, got.body)
		}
	}
	if got := l.get("/docs/mcp", "Accept", "text/event-stream"); got.status != http.StatusMethodNotAllowed {
		t.Errorf("a stream is answered %d", got.status)
	}
	if got := l.post(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", 100_000) + `"}}`); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a long call is answered %d %.200s", got.status, got.body)
	}
}

func TestMCP_CallsAMinute(t *testing.T) {
	t.Parallel()
	l := start(t)
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for n := range 60 {
		if got := l.post(ping); got.status != http.StatusOK {
			t.Fatalf("call %d: %d %s", n, got.status, got.body)
		}
	}
	if got := l.post(ping); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") != "60" {
		t.Errorf("%d %v", got.status, got.header)
	}
	l.clock.Add(int64(time.Minute))
	if got := l.post(ping); got.status != http.StatusOK {
		t.Errorf("a minute later: %d", got.status)
	}
}
