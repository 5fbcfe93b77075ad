package webtest

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/PuerkitoBio/goquery"

	"github.com/annals-project/annals/internal/runtest"
)

// maxPages bounds a crawl.
const maxPages = 2000

// How many pages are opened that differ in ids and in values of their query alone, and that differ in ids and in their
// query.
const (
	maxOfKind = 4
	maxOfPath = 30
)

// ids are the parts of a path that hold an id, or a name that is escaped.
var ids = regexp.MustCompile(`/[^/]*[0-9%][^/]*`)

// Crawl opens every page that links lead to from a path, each once, and calls visit with it. Of pages
// of one kind it opens some. Links that leave the console are not followed.
func (r *Reader) Crawl(from string, visit func(page Document, linkedFrom string)) {
	r.T.Helper()
	type link struct{ path, from string }
	queue, known, kinds := []link{{from, ""}}, map[string]bool{from: true}, map[string]int{}
	for n := 0; len(queue) > 0; n++ {
		if n == maxPages {
			r.T.Fatalf("there are more than %d pages; the next is %s", maxPages, queue[0].path)
		}
		next := queue[0]
		queue = queue[1:]
		page := r.Open(next.path)
		visit(page, next.from)
		page.Find("a[href]").Each(func(_ int, a *goquery.Selection) {
			target, err := page.URL.Parse(a.AttrOr("href", ""))
			runtest.Must(r.T, err)
			target.Fragment = ""
			path := target.RequestURI()
			if target.Host != page.URL.Host || known[path] || strings.HasPrefix(path, "/static/") {
				return
			}
			kind := ids.ReplaceAllString(target.EscapedPath(), "/*")
			named := kind + fmt.Sprint(slices.Sorted(maps.Keys(target.Query())))
			if kinds[kind] == maxOfPath || kinds[named] == maxOfKind {
				return
			}
			kinds[kind]++
			kinds[named]++
			known[path] = true
			queue = append(queue, link{path, page.URL.RequestURI()})
		})
	}
}

// Answer is what a request was answered, without following it.
type Answer struct {
	Status   int
	Location string
	Body     string
	// RetryAfter is that of a refusal, "" for none.
	RetryAfter string
}

// Ask makes one request as a browser does, and follows no redirect. Headers are names and values in turn; an empty
// value leaves out a header that browsers send.
func (r *Reader) Ask(method, path string, form url.Values, headers ...string) Answer {
	r.T.Helper()
	target, err := url.Parse(r.Base + path)
	runtest.Must(r.T, err)
	client := *r.HTTP
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	//nolint:bodyclose // send closes it
	res, body := r.send(&client, method, target, form.Encode(), "same-origin", headers...)
	return Answer{res.StatusCode, res.Header.Get("Location"), body, res.Header.Get("Retry-After")}
}

// Post sends a form as a browser does, and follows one redirect: the answer is the page to which the form leads.
func (r *Reader) Post(path string, form url.Values) Answer {
	r.T.Helper()
	got := r.Ask(http.MethodPost, path, form)
	if got.Status != http.StatusSeeOther {
		return got
	}
	return r.Ask(http.MethodGet, got.Location, nil)
}

var word = regexp.MustCompile(`svc_[sm]k_[0-9A-Za-z]{20,}`)

// Secrets are the keys in clear that a page holds, without the key of zeros that is an example of the documentation.
func (d Document) Secrets() []string {
	return slices.DeleteFunc(word.FindAllString(d.Body, -1), func(key string) bool {
		return strings.Trim(key[len("svc_sk_"):], "0") == ""
	})
}

// Text is what the page shows, with single spaces between words.
func (d Document) Text() string { return Plain(d.Find("body").Text()) }
