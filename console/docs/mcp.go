package docs

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/build"
	"github.com/annals-project/annals/internal/mcpguard"
)

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
