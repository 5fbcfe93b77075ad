package webtest_test

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/webtest"
)

// site serves pages that link to one another, and a form that shows what it got.
func site(t *testing.T) *webtest.Reader {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			fmt.Fprintf(w, `<main><p>Hello %s of %s by %s</p>
				<form method="post"><label>Name <input name="name"></label><label for="kind">Kind</label>
				<select id="kind" name="kind"><option value="a">First</option><option value="b" selected>Second</option></select>
				<input type="checkbox" name="kind" value="c"><button name="by" value="save">Save</button></form>
				<table><tr><td>Ana</td><td><a href="/row/ana">Open</a></td></tr>
				<tr><td>Ben</td><td><a href="/row/ben?a=1#top">Open</a></td></tr></table>
				<a href="https://elsewhere.example/">Elsewhere</a></main>`,
				html.EscapeString(r.FormValue("name")), r.Form["kind"], r.FormValue("by"))
		case "/moved":
			http.Redirect(w, r, "/row/ana", http.StatusSeeOther)
		case "/row/ana", "/row/ben":
			fmt.Fprintf(w, `<p>Row %s</p><a href="/">Back</a><a href="/moved">Moved</a>svc_sk_%s`, r.URL.Path, strings.Repeat("a", 24))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return webtest.NewReader(t, server.URL)
}

func TestReader_FollowsAndSubmits(t *testing.T) {
	t.Parallel()
	r := site(t)
	r.Open("/")
	r.Answered(http.StatusOK)
	r.Submit("Save", map[string]string{"Name": `Ana "<b>`})
	r.See(`Hello Ana "<b> of [b] by save`)
	r.Submit("Save", map[string]string{"Kind": "a"})
	r.See("of [a] by save")
	r.Follow("Open", "Ben")
	r.See("Row /row/ben")
	if secrets := r.At.Secrets(); len(secrets) != 1 {
		t.Errorf("the page holds %q", secrets)
	}
	r.Open("/nothing")
	r.Answered(http.StatusNotFound)
	if got := r.Ask(http.MethodGet, "/moved", nil); got.Status != http.StatusSeeOther || got.Location != "/row/ana" {
		t.Errorf("got %+v", got)
	}
}

func TestReader_CrawlsEachPageOnce(t *testing.T) {
	t.Parallel()
	var seen []string
	site(t).Crawl("/", func(page webtest.Document, from string) { seen = append(seen, page.URL.RequestURI()+" from "+from) })
	slices.Sort(seen)
	want := []string{"/ from ", "/row/ana from /", "/row/ana from /row/ana", "/row/ben?a=1 from /"}
	if !slices.Equal(seen, want) {
		t.Errorf("got %q, want %q", seen, want)
	}
}
