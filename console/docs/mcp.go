package docs

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/build"
)

const (
	// callsAMinute bounds the calls of one address, in each process.
	callsAMinute = 60
	// maxResults is the most results of a search, and someResults how many there are unless the caller names a number.
	maxResults  = 20
	someResults = 5
	// maxPage is the most bytes of text in one answer, which holds it twice: at most 25,000 tokens of four.
	maxPage = 40_000
	// mcpBody is the most bytes of a call.
	mcpBody = 64 << 10
	// keptFor is how long clients keep lists.
	keptFor = time.Hour
)

const instructions = "The documentation of Annals, a memory service. Search it first; then read the page or the " +
	"section that a result names."

func newMCP(l *library, cfg Config) http.Handler {
	name := &mcp.Implementation{Name: "annals-docs", Title: "Annals: documentation", Version: build.Version}
	s := mcp.NewServer(name, &mcp.ServerOptions{
		Instructions: instructions, Logger: cfg.Logger, Capabilities: &mcp.ServerCapabilities{},
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.TTLMs, c.CacheScope = int(keptFor.Milliseconds()), "public"
		},
	})
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false)}
	tool := func(name, title, text string) *mcp.Tool {
		return &mcp.Tool{Name: name, Title: title, Description: text, Annotations: reads}
	}
	mcp.AddTool(s, tool("search_docs", "Search the documentation",
		"Finds sections of the documentation and of the API reference by words. Read one with read_page."), l.searchDocs)
	mcp.AddTool(s, tool("read_page", "Read a page",
		"Returns a page, or a section of it, as Markdown. Ids are those of search_docs and list_pages."), l.readPage)
	mcp.AddTool(s, tool("list_pages", "List the pages", "Lists all pages with their sections of the index."), l.listPages)
	mcp.AddTool(s, tool("search", "Search", "The same as search_docs, for clients that know search and fetch."), l.search)
	mcp.AddTool(s, tool("fetch", "Fetch", "The same as read_page, for clients that know search and fetch."), l.fetch)
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, Logger: cfg.Logger, MaxRequestBodyBytes: mcpBody,
		DisableLocalhostProtection: true, // a proxy in front calls by the public name
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
	s.mcp.ServeHTTP(r.Writer(), r.Request)
	return nil
}

type searchInput struct {
	Query string `json:"query" jsonschema:"words to look for, or a question"`
	Limit int    `json:"limit,omitempty" jsonschema:"how many results at most, 1 to 20; 5 unless given"`
}

type hit struct {
	ID      string `json:"id"`
	Title   string `json:"title"`
	URL     string `json:"url"`
	Excerpt string `json:"excerpt"`
}

type hits struct {
	Results []hit `json:"results"`
}

func (l *library) hits(query string, limit int) hits {
	if limit < 1 {
		limit = someResults
	}
	out := hits{Results: []hit{}}
	for _, f := range l.index().search(query, min(limit, maxResults)) {
		title := f.page.Title
		if f.level > 1 {
			title += ": " + f.title
		}
		out.Results = append(out.Results, hit{f.id(), title, l.url(f.id()), f.excerpt})
	}
	return out
}

func (l *library) searchDocs(
	_ context.Context, _ *mcp.CallToolRequest, in searchInput,
) (*mcp.CallToolResult, hits, error) {
	out := l.hits(in.Query, in.Limit)
	var b strings.Builder
	for i, h := range out.Results {
		fmt.Fprintf(&b, "%d. %s (id %s)\n%s\n\n", i+1, h.Title, h.ID, h.Excerpt)
	}
	if len(out.Results) == 0 {
		b.WriteString("No section has these words. Try others, or list_pages.")
	}
	return text(strings.TrimSpace(b.String())), out, nil
}

type idInput struct {
	ID string `json:"id" jsonschema:"the id of a page such as integrate, or of a section such as integrate#ids"`
}

type pageOutput struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	URL   string `json:"url"`
	Text  string `json:"text" jsonschema:"Markdown"`
	Next  string `json:"next,omitempty" jsonschema:"the id of the section at which the text was cut: read on there"`
}

// read returns a page, or a section of it with those below it, up to the most bytes of an answer.
func (l *library) read(id string) (out pageOutput, err error) {
	name, anchor, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(id, l.address+prefix), ".md"), "#")
	p := l.byID[strings.TrimSuffix(name, ".md")]
	if p == nil {
		return out, fmt.Errorf("there is no page %q: list_pages and search_docs return the ids", cut(id, maxQuery))
	}
	var b strings.Builder
	within := 0 // the level of the section that is read, 0 before it
	for _, s := range sectionsOf(p) {
		if within == 0 && (anchor == "" || s.anchor == anchor) {
			within = s.level
			out = pageOutput{ID: s.id(), Title: p.Title, URL: l.url(s.id())}
			if s.level > 1 {
				out.Title += ": " + s.title
			}
		} else if within == 0 {
			continue
		} else if s.level <= within {
			break
		}
		written := l.markdown(p, s.text)
		if b.Len() > 0 && b.Len()+len(written) > maxPage {
			out.Next = s.id()
			break
		}
		b.WriteString(cut(written, maxPage))
	}
	if within == 0 {
		return out, fmt.Errorf("page %s has no section %q: read the page to see its sections", p.ID, cut(anchor, maxQuery))
	}
	out.Text = b.String()
	return out, nil
}

func (l *library) readPage(
	_ context.Context, _ *mcp.CallToolRequest, in idInput,
) (*mcp.CallToolResult, pageOutput, error) {
	out, err := l.read(in.ID)
	if err != nil {
		return nil, out, err
	}
	shown := out.Text
	if out.Next != "" {
		shown += "\n\nThis is not all: go on with read_page " + out.Next
	}
	return text(shown), out, nil
}

type listed struct {
	ID      string `json:"id"`
	Title   string `json:"title"`
	URL     string `json:"url"`
	Section string `json:"section"`
}

type listOutput struct {
	Pages []listed `json:"pages"`
}

func (l *library) listPages(
	_ context.Context, _ *mcp.CallToolRequest, _ struct{},
) (*mcp.CallToolResult, listOutput, error) {
	out := listOutput{Pages: []listed{}}
	var b strings.Builder
	for _, p := range l.pages {
		out.Pages = append(out.Pages, listed{p.ID, p.Title, l.url(p.ID), p.Group})
		fmt.Fprintf(&b, "%s: %s. %s\n", p.ID, p.Title, p.Summary)
	}
	return text(b.String()), out, nil
}

// search and fetch answer one text that holds JSON, as their clients want it.

func (l *library) search(_ context.Context, _ *mcp.CallToolRequest, in struct {
	Query string `json:"query" jsonschema:"words to look for, or a question"`
}) (*mcp.CallToolResult, any, error) {
	type found struct {
		ID    string `json:"id"`
		Title string `json:"title"`
		URL   string `json:"url"`
	}
	out := struct {
		Results []found `json:"results"`
	}{[]found{}}
	for _, h := range l.hits(in.Query, someResults).Results {
		out.Results = append(out.Results, found{h.ID, h.Title, h.URL})
	}
	return asText(out)
}

func (l *library) fetch(_ context.Context, _ *mcp.CallToolRequest, in idInput) (*mcp.CallToolResult, any, error) {
	page, err := l.read(in.ID)
	if err != nil {
		return nil, nil, err
	}
	metadata := map[string]string{"format": "markdown"}
	if page.Next != "" {
		metadata["next"] = page.Next
	}
	return asText(struct {
		ID       string            `json:"id"`
		Title    string            `json:"title"`
		Text     string            `json:"text"`
		URL      string            `json:"url"`
		Metadata map[string]string `json:"metadata"`
	}{page.ID, page.Title, page.Text, page.URL, metadata})
}

func asText(out any) (*mcp.CallToolResult, any, error) {
	body, err := json.Marshal(out)
	return text(string(body)), nil, err
}

func text(shown string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: shown}}}
}
