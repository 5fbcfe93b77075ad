// Package docs serves the documentation to people and programs: the pages of the tree and the reference of the API as
// HTML and Markdown, a search, llms.txt, the OpenAPI document as JSON, and a server of the Model Context Protocol. All
// of it is public.
package docs

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"strings"
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
	// maxFound is how many sections the page of a search shows.
	maxFound = 20
	markdown = "text/markdown; charset=utf-8"
	plainUTF = "text/plain; charset=utf-8"
)

// Config is what the documentation is made of.
type Config struct {
	// Files is the tree, with its pages and what they link to.
	Files fs.FS
	// OpenAPI is the document of the API, in YAML.
	OpenAPI []byte
	// More are pages that are not in the tree.
	More   []Page
	URLs   auth.URLs
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

// Area returns the pages.
func Area(cfg Config) (web.Area, error) {
	r, err := newReference(cfg.OpenAPI)
	if err != nil {
		return web.Area{}, err
	}
	pages, err := newLibrary(cfg.Files, cfg.URLs.Console, append(r.pages(), cfg.More...)...)
	if err != nil {
		return web.Area{}, fmt.Errorf("read the documentation: %w", err)
	}
	s := &site{library: pages, openAPI: r.asJSON(cfg.URLs.API), mcp: newMCP(pages, cfg)}
	s.calls = ratelimit.New(time.Minute, cfg.Now)
	routes := web.AnyOrigin(
		web.Route{Pattern: "GET /llms.txt", Public: true, Serve: s.llms},
		web.Route{Pattern: "GET /openapi.json", Public: true, Serve: s.document},
		web.Route{Pattern: "POST /docs/mcp", Public: true, Serve: s.callMCP},
	)
	return web.Area{Templates: templates, Routes: append(routes,
		web.Route{Pattern: "GET /docs", Serve: s.list},
		web.Route{Pattern: "GET /docs/search", Serve: s.find},
		web.Route{Pattern: "GET /docs/{page...}", Serve: s.page},
		web.Route{Pattern: "GET /docs/files/{file...}", Serve: s.file},
	)}, nil
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
	Page           *Page         `json:"page"`
	Body           template.HTML `json:"body"`
	Contents       []entry       `json:"contents"`
	Previous, Next *Page         `json:"-"`
}

// entry is a heading of a page.
type entry struct{ Anchor, Title string }

// minContents is from how many headings on a page lists them.
const minContents = 3

// page serves a page, as Markdown if its name ends so. The server of the protocol has the address of the page on it.
func (s *site) page(r *web.Request) error {
	id := r.PathValue("page")
	if id == "mcp" && strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		s.mcp.ServeHTTP(r.Writer(), r.Request)
		return nil
	}
	if id == "" || id == ".md" {
		r.Redirect("/docs")
		return nil
	}
	bare, isMarkdown := strings.CutSuffix(id, ".md")
	p := s.byID[bare]
	if p == nil {
		return fault.New(fault.NotFound, fault.CodeNotFound, "there is no page %q", id)
	}
	if isMarkdown {
		return r.Stream(markdown, "", writes(s.markdown(p, p.Text)))
	}
	body, err := s.toHTML(p)
	if err != nil {
		return fmt.Errorf("page %s: %w", id, err)
	}
	out := shown{Page: p, Body: template.HTML(body)} //nolint:gosec // of our own pages, without raw HTML
	for _, part := range sectionsOf(p) {
		if part.level == 2 {
			out.Contents = append(out.Contents, entry{part.anchor, part.title})
		}
	}
	if len(out.Contents) < minContents {
		out.Contents = nil
	}
	for i, other := range s.pages {
		switch {
		case other != p:
		case i > 0 && i+1 < len(s.pages):
			out.Previous, out.Next = s.pages[i-1], s.pages[i+1]
		case i > 0:
			out.Previous = s.pages[i-1]
		case i+1 < len(s.pages):
			out.Next = s.pages[i+1]
		}
	}
	return r.Render("page.html", out)
}

// result is a section that a search found.
type result struct {
	Path    string `json:"path"`
	Page    string `json:"page"`
	Title   string `json:"title"`
	Excerpt string `json:"excerpt"`
}

func (s *site) find(r *web.Request) error {
	query := strings.TrimSpace(r.URL.Query().Get("q"))
	results := []result{}
	if query != "" {
		for _, f := range s.index().search(query, maxFound) {
			results = append(results, result{prefix + f.id(), f.page.Title, f.title, f.excerpt})
		}
	}
	return r.Render("search.html", map[string]any{"Query": query, "Results": results, "Most": maxFound})
}

// file serves a file that a page links to, as text if it is no image.
func (s *site) file(r *web.Request) error {
	name := r.PathValue("file")
	content, err := fs.ReadFile(s.files, name)
	if err != nil {
		return fault.New(fault.NotFound, fault.CodeNotFound, "there is no file %q", name)
	}
	kind := plainUTF
	if path.Ext(name) == ".png" {
		kind = mime.TypeByExtension(".png")
	}
	return r.Stream(kind, "", writes(string(content)))
}

func writes(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

func (s *site) document(r *web.Request) error {
	return r.Stream("application/json; charset=utf-8", "", writes(string(s.openAPI)))
}

// llms writes the index of the pages in the form of llmstxt.org.
func (s *site) llms(r *web.Request) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Annals\n\n> A memory service: it takes timestamped text, derives memory from it, and on recall "+
		"returns ranked documents with their sources.\n\nEvery page is Markdown at these addresses, and HTML without "+
		"the ending. Search them over the Model Context Protocol at %s%smcp, without a credential. The API as OpenAPI: "+
		"%s/openapi.json\n", s.address, prefix, s.address)
	for _, g := range s.groups() {
		fmt.Fprintf(&b, "\n## %s\n\n", g.Name)
		for _, p := range g.Pages {
			fmt.Fprintf(&b, "- [%s](%s.md)", p.Title, s.url(p.ID))
			if p.Summary != "" {
				fmt.Fprintf(&b, ": %s", p.Summary)
			}
			b.WriteByte('\n')
		}
	}
	return r.Stream(plainUTF, "", writes(b.String()))
}
