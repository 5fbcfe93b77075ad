// Package docs serves the documentation to people and programs: the pages of the tree and the reference of the API as
// HTML and Markdown, a search, llms.txt, the OpenAPI document as JSON, and a server of the Model Context Protocol. All
// of it is public.
package docs

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/build"
	"github.com/annals-project/annals/internal/mcpguard"
	"github.com/annals-project/annals/internal/ratelimit"
)

//go:embed *.html
var templates embed.FS

const (
	prefix     = "/docs/"
	filePrefix = prefix + "files/"
	// maxFound is the most sections that a search finds.
	maxFound = 20
)

// Config is what the documentation is made of.
type Config struct {
	// Files is the tree, with its pages and what they link to.
	Files fs.FS
	// OpenAPI is the document of the API, in YAML.
	OpenAPI []byte
	// More makes the pages that are not in the tree.
	More func() ([]Page, error)
	URLs auth.URLs
	// Logger receives panics of tools.
	Logger *slog.Logger
	Now    func() time.Time
}

// site is the documentation of one deployment.
type site struct {
	*library

	openAPI []byte
	mcp     http.Handler
	calls   *ratelimit.Windows
}

// Area returns the pages. They are made when the first one is opened, so that the service starts without them.
func Area(cfg Config) web.Area {
	made := sync.OnceValues(func() (*site, error) { return newSite(cfg) })
	on := func(serve func(*site, *web.Request) error) func(*web.Request) error {
		return func(r *web.Request) error {
			s, err := made()
			if err != nil {
				return fmt.Errorf("read the documentation: %w", err)
			}
			return serve(s, r)
		}
	}
	return web.Area{Templates: templates, Routes: append(web.AnyOrigin(
		web.Route{Pattern: "GET /llms.txt", Public: true, Serve: on((*site).llms)},
		web.Route{Pattern: "GET /openapi.json", Public: true, Serve: on((*site).document)},
		web.Route{Pattern: "POST /docs/mcp", Public: true, Serve: on((*site).callMCP)},
	),
		web.Route{Pattern: "GET /docs", Serve: on((*site).list)},
		web.Route{Pattern: "GET /docs/search", Serve: on((*site).find)},
		web.Route{Pattern: "GET /docs/{page...}", Serve: on((*site).page)},
		web.Route{Pattern: "GET /docs/files/{file...}", Serve: on((*site).file)},
	)}
}

func newSite(cfg Config) (*site, error) {
	r, err := newReference(cfg.OpenAPI, cfg.URLs.API)
	if err != nil {
		return nil, err
	}
	reference, errReference := r.pages()
	more, errMore := cfg.More()
	openAPI, errJSON := json.Marshal(r.document)
	pages, errPages := newLibrary(cfg.Files, cfg.URLs.Console, append(reference, more...)...)
	if err := errors.Join(errReference, errMore, errJSON, errPages); err != nil {
		return nil, err
	}
	return &site{pages, openAPI, newMCP(pages, cfg.Logger), ratelimit.New(time.Minute, cfg.Now)}, nil
}

// group is the pages of one heading of the index.
type group struct {
	Name  string  `json:"name"`
	Pages []*Page `json:"pages"`
}

func (l *library) groups() (list []group) {
	for _, p := range l.pages {
		if n := len(list); n == 0 || list[n-1].Name != p.Group {
			list = append(list, group{Name: p.Group})
		}
		list[len(list)-1].Pages = append(list[len(list)-1].Pages, p)
	}
	return list
}

func (s *site) list(r *web.Request) error { return r.Render("index.html", s.groups()) }

// shown is a page as its template takes it.
type shown struct {
	*Page

	Body     template.HTML `json:"body"`
	Contents []section     `json:"contents"`
}

// page serves a page, as Markdown if its name ends so. The server of the protocol has the address of the page on it.
func (s *site) page(r *web.Request) error {
	id := r.PathValue("page")
	if id == "mcp" && strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return r.Buffered(s.mcp, r.Request)
	}
	bare, isMarkdown := strings.CutSuffix(id, ".md")
	p := s.byID[bare]
	if p == nil {
		return fault.New(fault.NotFound, fault.CodeNotFound, "there is no page %q", id)
	}
	if isMarkdown {
		return write(r, "text/markdown", s.markdown(p, p.Text))
	}
	body, err := s.toHTML(p)
	if err != nil {
		return fmt.Errorf("page %s: %w", id, err)
	}
	out := shown{Page: p, Body: template.HTML(body)} //nolint:gosec // of our own pages, without raw HTML
	for _, part := range sectionsOf(p) {
		if part.level == 2 {
			out.Contents = append(out.Contents, part)
		}
	}
	return r.Render("page.html", out)
}

func (s *site) find(r *web.Request) error {
	query := strings.TrimSpace(r.URL.Query().Get("q"))
	return r.Render("search.html", map[string]any{
		"Query": query, "Results": s.hits(query, maxFound).Results, "Most": maxFound,
	})
}

// file serves a file that a page links to, as text if it is no image.
func (s *site) file(r *web.Request) error {
	name, kind := r.PathValue("file"), "text/plain"
	content, err := fs.ReadFile(s.files, name)
	if err != nil {
		return fault.New(fault.NotFound, fault.CodeNotFound, "there is no file %q", name)
	}
	if path.Ext(name) == ".png" {
		kind = "image/png"
	}
	return write(r, kind, string(content))
}

func write(r *web.Request, kind, text string) error {
	return r.Text(kind+"; charset=utf-8", text)
}

func (s *site) document(r *web.Request) error { return write(r, "application/json", string(s.openAPI)) }

// llms writes the index of the pages in the form of llmstxt.org.
func (s *site) llms(r *web.Request) error {
	text := fmt.Sprintf("# Annals\n\n> A memory service: it takes timestamped text, derives memory from it, and on "+
		"recall returns ranked documents with their sources.\n\nEvery page is Markdown at these addresses, and HTML "+
		"without the ending. Search them over the Model Context Protocol at %s%smcp, without a credential. The API as "+
		"OpenAPI: %s/openapi.json\n", s.address, prefix, s.address)
	for _, g := range s.groups() {
		text += fmt.Sprintf("\n## %s\n\n", g.Name)
		for _, p := range g.Pages {
			text += strings.TrimSuffix(fmt.Sprintf("- [%s](%s.md): %s", p.Title, s.url(p.ID), p.Summary), ": ") + "\n"
		}
	}
	return write(r, "text/plain", text)
}

const (
	// callsAMinute bounds the calls of one address, in each process.
	callsAMinute = 60
	// someResults is how many results there are unless the caller names a number, up to maxFound.
	someResults = 5
	// maxPage is the most bytes of text in one answer, which holds it twice: at most 25,000 tokens of four.
	maxPage = 40_000
	// mcpBody is the most bytes of a call.
	mcpBody = 64 << 10
	// keptFor is how long clients keep lists.
	keptFor = time.Hour
)

// oldest is the first version of the protocol that is spoken.
const oldest = "2025-06-18"

const instructions = "The documentation of Annals, a memory service. Search it first; then read the page or the " +
	"section that a result names."

// newMCP serves the tools of the library.
func newMCP(l *library, logger *slog.Logger) http.Handler {
	name := &mcp.Implementation{Name: "annals-docs", Title: "Annals: documentation", Version: build.Version}
	versions := slices.DeleteFunc(mcp.SupportedProtocolVersions(), func(v string) bool { return v < oldest })
	s := mcp.NewServer(name, &mcp.ServerOptions{
		Instructions: instructions, SupportedProtocolVersions: versions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}, // nothing is announced later
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.TTLMs, c.CacheScope = int(keptFor.Milliseconds()), "public"
		},
	})
	s.AddReceivingMiddleware(mcpguard.New(logger))
	addTool(s, "search_docs", "Search the documentation", l.searchDocs,
		"Finds sections of the documentation and of the API reference by words. Read one with read_page.")
	addTool(s, "read_page", "Read a page", l.readPage,
		"Returns a page, or a section of it, as Markdown. Ids are those of search_docs and list_pages.")
	addTool(s, "list_pages", "List the pages", l.listPages, "Lists all pages, in the order of the index.")
	addTool(s, "search", "Search", l.search, "The same as search_docs, for clients that know search and fetch.")
	addTool(s, "fetch", "Fetch", l.fetch, "The same as read_page, for clients that know search and fetch.")
	serves := func(*http.Request) *mcp.Server { return s }
	return mcpguard.Handler(mcp.NewStreamableHTTPHandler(serves, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: mcpBody,
		Logger:                     slog.New(slog.DiscardHandler),
		DisableLocalhostProtection: true, // a proxy in front calls by the public name
	}))
}

// addTool adds a tool that only reads. answer returns the text and the structure of its result.
func addTool[In, Out any](s *mcp.Server, name, title string, answer func(In) (string, Out, error), description string) {
	tool := &mcp.Tool{Name: name, Title: title, Description: description, Annotations: &mcp.ToolAnnotations{
		ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false),
	}}
	mcp.AddTool(s, tool, func(_ context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		text, out, err := answer(in)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, out, err
	})
}

// callMCP serves a call, unless its address makes too many.
func (s *site) callMCP(r *web.Request) error {
	var caller uuid.UUID
	if address := r.Caller(); address.IsValid() {
		caller = address.As16()
	}
	if retry, ok := s.calls.Allow(caller, callsAMinute); !ok {
		r.Writer().Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(retry.Seconds()))))
		http.Error(r.Writer(), fmt.Sprintf("at most %d calls a minute", callsAMinute), http.StatusTooManyRequests)
		return nil
	}
	return r.Buffered(s.mcp, r.Request)
}

type queryInput struct {
	Query string `json:"query" jsonschema:"words to look for, or a question"`
}

type searchInput struct {
	queryInput

	Limit int `json:"limit,omitempty" jsonschema:"how many results at most, up to 20; 5 unless given"`
}

// hit is a section that was found, or a page of the list with its section of the index.
type hit struct {
	ID      string `json:"id"`
	Title   string `json:"title"`
	URL     string `json:"url"`
	Excerpt string `json:"excerpt,omitempty"`
	Section string `json:"section,omitempty"`
}

type hits struct {
	Results []hit `json:"results"`
}

func (l *library) hits(query string, limit int) hits {
	out := hits{Results: []hit{}}
	for _, f := range l.index().search(query, min(limit, maxFound)) {
		out.Results = append(out.Results, hit{ID: f.id(), Title: f.name(), URL: l.url(f.id()), Excerpt: f.excerpt})
	}
	return out
}

func (l *library) searchDocs(in searchInput) (text string, out hits, err error) {
	if in.Limit < 1 {
		in.Limit = someResults
	}
	out = l.hits(in.Query, in.Limit)
	for i, h := range out.Results {
		text += fmt.Sprintf("%d. %s (id %s)\n%s\n\n", i+1, h.Title, h.ID, h.Excerpt)
	}
	if text == "" {
		text = "No section has these words. Try others, or list_pages."
	}
	return text, out, nil
}

func (l *library) search(in queryInput) (text string, none any, err error) {
	out := l.hits(in.Query, someResults)
	for i := range out.Results {
		out.Results[i].Excerpt = ""
	}
	body, err := json.Marshal(out)
	return string(body), nil, err
}

type idInput struct {
	ID string `json:"id" jsonschema:"the id of a page such as integrate, of a section such as integrate#ids, or of all from there on: integrate#ids+"`
}

type pageOutput struct {
	ID       string            `json:"id"`
	Title    string            `json:"title"`
	Text     string            `json:"text" jsonschema:"Markdown"`
	URL      string            `json:"url"`
	Next     string            `json:"next,omitempty" jsonschema:"the id at which the text was cut: read on there"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func (l *library) readPage(in idInput) (text string, out pageOutput, err error) {
	if out, err = l.read(in.ID); err != nil {
		return "", out, err
	}
	text = out.Text
	if out.Next != "" {
		text += "\n\nThis is not all: go on with read_page " + out.Next
	}
	return text, out, nil
}

func (l *library) fetch(in idInput) (text string, none any, err error) {
	out, err := l.read(in.ID)
	if err != nil {
		return "", nil, err
	}
	out.Metadata = map[string]string{"format": "markdown"}
	body, err := json.Marshal(out)
	return string(body), nil, err
}

// read returns a page, a section of it with those below it, or with a + all from there on, up to the most bytes of an
// answer.
func (l *library) read(id string) (out pageOutput, err error) {
	name, anchor, _ := strings.Cut(strings.TrimPrefix(id, l.address+prefix), "#")
	anchor, toEnd := strings.CutSuffix(anchor, "+")
	p := l.byID[strings.TrimSuffix(name, ".md")]
	if p == nil {
		return out, fmt.Errorf("there is no page %q: list_pages and search_docs return the ids", cut(id, maxQuery))
	}
	within := 0 // the level of the section that is read, 0 before it
	for _, s := range sectionsOf(p) {
		if within == 0 {
			if anchor != "" && s.Anchor != anchor {
				continue
			}
			within, out = s.level, pageOutput{ID: s.id(), Title: s.name(), URL: l.url(s.id())}
		} else if !toEnd && s.level <= within {
			break
		}
		text := l.markdown(p, s.text)
		if out.Text != "" && len(out.Text)+len(text) > maxPage {
			out.Next = s.id() + "+"
			break
		}
		out.Text += cut(text, maxPage)
	}
	if within == 0 {
		return out, fmt.Errorf("page %s has no section %q: read the page to see its sections", p.ID, cut(anchor, maxQuery))
	}
	return out, nil
}

type listOutput struct {
	Pages []hit `json:"pages"`
}

func (l *library) listPages(struct{}) (text string, out listOutput, err error) {
	for _, p := range l.pages {
		out.Pages = append(out.Pages, hit{ID: p.ID, Title: p.Title, URL: l.url(p.ID), Section: p.Group})
		text += fmt.Sprintf("%s: %s. %s\n", p.ID, p.Title, p.Summary)
	}
	return text, out, nil
}

// Snippet is what a client of MCP is configured with: its name and a command or a part of a file.
type Snippet struct{ Client, Text string }

// snippetsFile has a section for each client, whose first block is its snippet with the values of snippetValues.
const snippetsFile = "docs/mcp-clients.md"

// The values of the page that stand for those of a deployment and of a key.
const (
	shownConsole = "http://127.0.0.1:8081"
	shownKey     = "svc_sk_…"
)

var snippetOf = regexp.MustCompile("(?s)\n## ([^\n]+)\n.*?```[a-z]+\n(.*?)\n```")

// Snippets are the snippets of the page about clients, with the address of a console and a key filled in.
func Snippets(files fs.FS, console, key string) ([]Snippet, error) {
	text, err := fs.ReadFile(files, snippetsFile)
	if err != nil {
		return nil, fmt.Errorf("read the page about clients: %w", err)
	}
	values := strings.NewReplacer(shownConsole, console, shownKey, key)
	var list []Snippet
	for _, found := range snippetOf.FindAllStringSubmatch(string(text), -1) {
		list = append(list, Snippet{found[1], values.Replace(found[2])})
	}
	return list, nil
}
