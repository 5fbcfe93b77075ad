package browser

import (
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/webtest"
)

// shapes are what replaces in a path what differs from one thing to another of its kind.
var shapes = []struct {
	part *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`), "ID"},
	{regexp.MustCompile(`^/p/[^/?]+`), "/p/PROJECT"},
	{regexp.MustCompile(`/(data|identities|audiences|webhooks|operations|members|rebuilds|docs/reference|docs)/([^/?]+)`), "/$1/ONE"},
}

// shapeOf is the same for pages that differ in what they show alone. Words of the console itself stay.
func shapeOf(page *url.URL) string {
	path := page.EscapedPath()
	for _, s := range shapes {
		if !strings.HasSuffix(path, "/new") {
			path = s.part.ReplaceAllString(path, s.as)
		}
	}
	return path
}

// found is one page of a shape.
type found struct{ shape, path string }

// crawl opens every page that somebody can reach by links, checks what is true of all, and returns one page of each
// shape, by its shape.
func crawl(t testing.TB, r *webtest.Reader) (pages []found) {
	t.Helper()
	known := map[string]bool{}
	r.Crawl("/", func(page webtest.Document, from string) {
		where := page.URL.RequestURI()
		if page.Status != http.StatusOK {
			t.Errorf("%s, linked from %s, answered %d: %.300s", where, from, page.Status, page.Text())
			return
		}
		if secrets := page.Secrets(); len(secrets) > 0 {
			t.Errorf("%s holds a key in clear", where)
		}
		if !strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") {
			return
		}
		if n := page.Find("h1").Length(); n != 1 {
			t.Errorf("%s has %d headings of the first level", where, n)
		}
		if shape := shapeOf(page.URL); !known[shape] {
			known[shape] = true
			pages = append(pages, found{shape, where})
		}
	})
	slices.SortFunc(pages, func(a, b found) int { return strings.Compare(a.shape, b.shape) })
	return pages
}

// TestWalk_EveryPage opens each page as the Owner of a furnished organization: in a browser, with axe in both themes.
// With a folder for screenshots it makes them, and looks at the width of a phone.
func TestWalk_EveryPage(t *testing.T) {
	t.Parallel()
	needBrowser(t)
	s := start(t)
	s.furnish()
	r := webtest.NewReader(t, s.console)
	s.signIn(r)
	pages := crawl(t, r)
	t.Logf("%d pages", len(pages))
	pages = append(pages, found{"/docs/limits", "/docs/limits"}, found{"/docs/search", "/docs/search?q=audience"})
	p := newPerson(t, s.console)
	for _, path := range []string{"/docs", "/docs/start"} { // for who is not signed in
		p.open(path)
		p.answered(http.StatusOK)
		p.accessible()
		p.fits()
	}
	s.signInAs(p, s.credentials[ownerEmail], s.credentials[ownerPassword])
	for _, page := range pages {
		p.open(page.path)
		p.answered(http.StatusOK)
		p.accessible()
		p.fits()
		if os.Getenv(folderVariable) != "" {
			p.shoot(page.shape)
		}
	}
}
