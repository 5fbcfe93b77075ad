// Package docs serves the documentation to people and programs: the pages of the tree and the reference of the API as
// HTML and Markdown, a search, llms.txt, the OpenAPI document as JSON, and a server of the Model Context Protocol. All
// of it is public.
package docs

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
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
