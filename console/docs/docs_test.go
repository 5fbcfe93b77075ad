package docs_test

import (
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"

	"github.com/annals-project/annals"
	"github.com/annals-project/annals/console/docs"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/readapi"
)

const (
	consoleURL = "https://console.acme.example"
	apiURL     = "https://api.acme.example"
)

// library is the documentation, served to nobody in particular.
type library struct {
	t     *testing.T
	url   string
	clock atomic.Int64
}

func start(t *testing.T) *library {
	t.Helper()
	l := &library{t: t}
	now := func() time.Time { return time.Unix(0, l.clock.Load()) }
	area := docs.Area(docs.Config{
		Files: annals.Pages, OpenAPI: readapi.OpenAPI, URLs: auth.URLs{API: apiURL, Console: consoleURL, Auth: consoleURL},
		More: func() ([]docs.Page, error) {
			return []docs.Page{{
				ID: "auth", Title: "Register", Group: "Agents", Summary: "how agents register", File: "auth.md",
				Text: "# Register\n\nSee [the limits](docs/limits.md). The secret word is xylophone.\n",
			}}, nil
		},
		Logger: slog.New(slog.DiscardHandler), Now: now,
	})
	site, err := web.New(web.Config{
		URL: consoleURL, Cookies: web.NewCookies(consoleURL, uuid.New()), Admit: func() error { return nil },
		Logger: slog.New(slog.DiscardHandler), Now: now,
	}, []web.Area{area})
	runtest.Must(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := site.Serve(w, r, &httpx.PageNote{}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	l.url = server.URL
	return l
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (l *library) get(path string, headers ...string) answer {
	l.t.Helper()
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, l.url+path, http.NoBody)
	runtest.Must(l.t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	runtest.Must(l.t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	runtest.Must(l.t, err)
	return answer{res.StatusCode, res.Header, string(body)}
}

func (l *library) page(path string) *goquery.Document {
	l.t.Helper()
	got := l.get(path)
	if got.status != http.StatusOK {
		l.t.Fatalf("%s: %d %.300s", path, got.status, got.body)
	}
	page, err := goquery.NewDocumentFromReader(strings.NewReader(got.body))
	runtest.Must(l.t, err)
	return page
}

// Each link of each page leads to a page that is there, and to a heading of it.
func TestPages_LinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	l := start(t)
	pages := map[string]*goquery.Document{}
	queue := []string{"/docs"}
	links := 0
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		page := l.page(at)
		pages[at] = page
		if n := page.Find("h1").Length(); n != 1 {
			t.Errorf("%s has %d headings of the first level", at, n)
		}
		if n := page.Find("[style]").Length(); n > 0 {
			t.Errorf("%s has %d styles that the policy forbids", at, n)
		}
		page.Find("a[href], img[src]").Each(func(_ int, a *goquery.Selection) {
			target, err := url.Parse(a.AttrOr("href", a.AttrOr("src", "")))
			runtest.Must(t, err)
			switch {
			case target.Host != "" || target.Scheme != "":
				return
			case target.Path == "" || strings.HasPrefix(target.Path, "/"):
			default:
				t.Errorf("%s links to %s", at, target)
			}
			links++
			if strings.HasPrefix(target.Path, "/docs/files/") || strings.HasSuffix(target.Path, ".md") ||
				target.Path == "/llms.txt" || target.Path == "/openapi.json" {
				if got := l.get(target.Path); got.status != http.StatusOK || got.body == "" {
					t.Errorf("%s links to %s: %d", at, target, got.status)
				}
				return
			}
			if known, ok := pages[target.Path]; target.Path != "" && (!ok || known == nil) && strings.HasPrefix(target.Path, "/docs") {
				if !ok {
					pages[target.Path] = nil
					queue = append(queue, target.Path)
				}
			}
		})
	}
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*.md"} {
		files, err := fs.Glob(annals.Pages, pattern)
		runtest.Must(t, err)
		for _, file := range files {
			id := strings.ToLower(strings.TrimSuffix(path.Base(file), ".md"))
			if id != "readme" && pages["/docs/"+id] == nil {
				t.Errorf("the index has no link to %s", file)
			}
		}
	}
	if len(pages) < 35 || links < 500 {
		t.Errorf("%d pages with %d links", len(pages), links)
	}
	for at, page := range pages {
		page.Find("a[href*='#']").Each(func(_ int, a *goquery.Selection) {
			target, err := url.Parse(a.AttrOr("href", ""))
			runtest.Must(t, err)
			in := page
			if target.Path != "" {
				in = pages[target.Path]
			}
			if target.Host == "" && in.Find(`[id="`+target.Fragment+`"]`).Length() != 1 {
				t.Errorf("%s links to %s, where no heading has that name", at, target)
			}
		})
	}
}

func TestPages_Markdown(t *testing.T) {
	t.Parallel()
	l := start(t)
	got := l.get("/docs/integrate.md")
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "text/markdown; charset=utf-8" {
		t.Fatalf("%d %v", got.status, got.header)
	}
	for _, want := range []string{
		"# Integrate Annals into a program\n", "](" + consoleURL + "/docs/concepts.md)", "](" + consoleURL + "/docs/reference.md)",
	} {
		if !strings.Contains(got.body, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for path, status := range map[string]int{
		"/docs/none": 404, "/docs/none.md": 404, "/docs/files/go.mod": 404, "/docs/files/docs": 404, "/docs/files/../go.mod": 404,
		"/docs/reference/ingestion": 200, "/docs/auth": 200, "/docs/runbook": 200, "/docs/files/docs/leaf-vectors.json": 200,
	} {
		if got := l.get(path); got.status != status {
			t.Errorf("%s: %d, want %d", path, got.status, status)
		}
	}
}

func TestReference_HasEachRouteAndField(t *testing.T) {
	t.Parallel()
	l := start(t)
	doc, err := openapi3.NewLoader().LoadFromData(readapi.OpenAPI)
	runtest.Must(t, err)
	var all strings.Builder
	for _, tag := range doc.Tags {
		all.WriteString(l.page("/docs/reference/" + tag.Name).Text())
	}
	all.WriteString(l.page("/docs/reference/shared").Text())
	shown := strings.Join(strings.Fields(all.String()), " ")
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			for _, want := range []string{method + " " + path, strings.ReplaceAll(op.Summary, "`", "")} {
				if !strings.Contains(shown, want) {
					t.Errorf("the reference has no %q", want)
				}
			}
		}
	}
	for name, schema := range doc.Components.Schemas {
		if !strings.Contains(shown, "Schema "+name+" ") {
			t.Errorf("the reference has no schema %s", name)
		}
		for field := range schema.Value.Properties {
			if !strings.Contains(shown, field) {
				t.Errorf("the reference has no field %s of %s", field, name)
			}
		}
	}
}

func TestDocument_IsJSONWithTheAddress(t *testing.T) {
	t.Parallel()
	got := start(t).get("/openapi.json", "Origin", "https://elsewhere.example")
	doc, err := openapi3.NewLoader().LoadFromData([]byte(got.body))
	runtest.Must(t, err)
	if len(doc.Servers) != 1 || doc.Servers[0].URL != apiURL || got.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("%+v %v", doc.Servers, got.header)
	}
	want, err := openapi3.NewLoader().LoadFromData(readapi.OpenAPI)
	runtest.Must(t, err)
	want.Servers = doc.Servers
	a, err := json.Marshal(want)
	runtest.Must(t, err)
	b, err := json.Marshal(doc)
	runtest.Must(t, err)
	if string(a) != string(b) {
		t.Error("the document in JSON differs from that in YAML")
	}
}

func TestLLMs_ListsEachPage(t *testing.T) {
	t.Parallel()
	l := start(t)
	got := l.get("/llms.txt").body
	if !strings.HasPrefix(got, "# Annals\n\n> ") || !strings.Contains(got, "\n## API reference\n") {
		t.Errorf("%.600s", got)
	}
	n := 0
	for line := range strings.Lines(got) {
		if _, rest, ok := strings.Cut(line, "]("+consoleURL); ok && strings.HasPrefix(line, "- [") {
			path, _, _ := strings.Cut(rest, ")")
			if page := l.get(path); page.status != http.StatusOK || !strings.HasPrefix(page.body, "# ") {
				t.Errorf("%s: %d %.60s", path, page.status, page.body)
			}
			n++
		}
	}
	if n < 35 {
		t.Errorf("%d pages:\n%s", n, got)
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	l := start(t)
	for query, want := range map[string]string{
		"xylophone":                            "/docs/auth",
		"rate limit":                           "/docs/limits#",
		"ANNALS_CONSOLE_URL":                   "/docs/settings#",
		"second factor lost":                   "/docs/console#",
		"idempotencyKey":                       "/docs/reference/ingestion#schema-idempotencykey",
		"same idempotency key twice":           "/docs/integrate#what-may-be-repeated",
		"restore a backup":                     "/docs/runbook#",
		"erase a person":                       "/docs/erase-a-person",
		"POST /api/v1/recall":                  "/docs/reference/recall#post-apiv1recall",
		"supersede":                            "/docs/how-recall-ranks#",
		"where does a memory come from, trace": "/docs/trace",
	} {
		page := l.page("/docs/search?q=" + url.QueryEscape(query))
		var found []string
		page.Find("main h2 a").Each(func(_ int, a *goquery.Selection) { found = append(found, a.AttrOr("href", "")) })
		if len(found) == 0 || !strings.HasPrefix(strings.Join(found[:min(3, len(found))], " "), want) &&
			!strings.Contains(strings.Join(found[:min(3, len(found))], " "), " "+want) {
			t.Errorf("%q finds %q, not %s", query, found, want)
		}
	}
	if text := l.page("/docs/search?q=zzzzqqq").Find("main").Text(); !strings.Contains(text, "No page") {
		t.Errorf("%.300s", text)
	}
	if got := l.get("/docs/search?q=" + url.QueryEscape("<zebra>"+strings.Repeat("x ", 2000))); got.status != http.StatusOK ||
		strings.Contains(got.body, "<zebra>") {
		t.Errorf("%d", got.status)
	}
}

// Each client has a snippet with the address and the key of a deployment, bound to an identity.
func TestSnippets(t *testing.T) {
	const console, key = "https://memory.example", "svc_sk_0123456789"
	list, err := docs.Snippets(annals.Pages, console, key)
	runtest.Must(t, err)
	var names []string
	for _, s := range list {
		names = append(names, s.Client)
		if !strings.Contains(s.Text, key) || !strings.Contains(s.Text, console) || !strings.Contains(s.Text, "ana") ||
			strings.Contains(s.Text, "127.0.0.1") || strings.Contains(s.Text, "…") {
			t.Errorf("%s: %s", s.Client, s.Text)
		}
	}
	want := "Claude Code, Claude Desktop, Cursor, VS Code, Codex, LangGraph, openai-agents, pydantic-ai"
	if got := strings.Join(names, ", "); got != want {
		t.Errorf("%s", got)
	}
}
