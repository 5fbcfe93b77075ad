// Package webtest reads the pages of the console in tests as a browser without scripts does.
package webtest

import (
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"
	"golang.org/x/net/html"

	"github.com/annals-project/annals/internal/runtest"
)

// Reader is somebody at a browser that runs no scripts: it follows links and submits forms, and does nothing else.
type Reader struct {
	T    testing.TB
	Base string
	HTTP *http.Client
	// At is the page that the reader sees.
	At Document

	files map[string][2]string // by label: name and content
}

// Attach chooses a file in the field with a label, for the next Submit.
func (r *Reader) Attach(label, name, content string) {
	r.files = map[string][2]string{label: {name, content}}
}

// Document is a page as the server sent it.
type Document struct {
	*goquery.Selection

	URL    *url.URL
	Status int
	Header http.Header
	Body   string
}

// NewReader is somebody without a session at the console at base.
func NewReader(t testing.TB, base string) *Reader {
	t.Helper()
	jar, err := cookiejar.New(nil)
	runtest.Must(t, err)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	return &Reader{T: t, Base: base, HTTP: &http.Client{Jar: jar, Transport: transport}}
}

// Open goes to an address of the console, as somebody who types it.
func (r *Reader) Open(path string) Document {
	r.T.Helper()
	target, err := url.Parse(r.Base + path)
	runtest.Must(r.T, err)
	return r.Request(http.MethodGet, target, nil, "none")
}

// Request makes a request as a browser does, follows redirects, and returns the page at their end.
func (r *Reader) Request(method string, target *url.URL, form url.Values, site string) Document {
	r.T.Helper()
	return r.arrive(method, target, form.Encode(), site)
}

func (r *Reader) arrive(method string, target *url.URL, sent, site string, headers ...string) Document {
	r.T.Helper()
	res, body := r.send(r.HTTP, method, target, sent, site, headers...) //nolint:bodyclose // send closes it
	page, err := goquery.NewDocumentFromReader(strings.NewReader(body))
	runtest.Must(r.T, err)
	r.At = Document{page.Selection, res.Request.URL, res.StatusCode, res.Header, body}
	return r.At
}

// send makes a request with the headers of a browser, and with others in place of them.
func (r *Reader) send(
	client *http.Client, method string, target *url.URL, body, site string, headers ...string,
) (*http.Response, string) {
	r.T.Helper()
	req, err := http.NewRequestWithContext(r.T.Context(), method, target.String(), strings.NewReader(body))
	runtest.Must(r.T, err)
	req.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	req.Header.Set("Sec-Fetch-Site", site)
	req.Header.Set("Sec-Fetch-Mode", "navigate")
	req.Header.Set("Sec-Fetch-Dest", "document")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", target.Scheme+"://"+target.Host)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Del(headers[i])
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	res, err := client.Do(req)
	runtest.Must(r.T, err)
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	runtest.Must(r.T, err)
	return res, string(answer)
}

// Follow follows the one link with a name, in the part of the page that has the text of inside.
func (r *Reader) Follow(name string, inside ...string) Document {
	r.T.Helper()
	link := r.one("a[href]", name, inside...)
	target, err := r.At.URL.Parse(link.AttrOr("href", ""))
	runtest.Must(r.T, err)
	return r.Request(http.MethodGet, target, nil, "same-origin")
}

// Submit fills the fields of the form that has a button with a name, and submits it with the button. Fields are named
// by their labels, or by their names where no label shows.
func (r *Reader) Submit(button string, fields map[string]string, inside ...string) Document {
	r.T.Helper()
	pressed := r.one("button, input[type=submit]", button, inside...)
	form := pressed.Closest("form")
	if id, named := pressed.Attr("form"); named {
		form = r.At.Find("form#" + id)
	}
	if form.Length() != 1 {
		r.T.Fatalf("the button %q of %s has no form", button, r.At.URL)
	}
	filled := map[*html.Node]string{}
	for label, value := range fields {
		filled[r.field(form, label)] = value
	}
	values := r.values(form, filled)
	if name, named := pressed.Attr("name"); named {
		values.Set(name, pressed.AttrOr("value", ""))
	}
	target, err := r.At.URL.Parse(pressed.AttrOr("formaction", form.AttrOr("action", "")))
	runtest.Must(r.T, err)
	if strings.EqualFold(pressed.AttrOr("formmethod", form.AttrOr("method", "get")), http.MethodGet) {
		target.RawQuery = values.Encode()
		return r.Request(http.MethodGet, target, nil, "same-origin")
	}
	if form.AttrOr("enctype", "") == "multipart/form-data" {
		body, contentType := r.multipart(form, values)
		return r.arrive(http.MethodPost, target, body, "same-origin", "Content-Type", contentType)
	}
	return r.Request(http.MethodPost, target, values, "same-origin")
}

// multipart writes a form with the files that were attached.
func (r *Reader) multipart(form *goquery.Selection, values url.Values) (body, contentType string) {
	r.T.Helper()
	var b strings.Builder
	out := multipart.NewWriter(&b)
	for name, list := range values {
		for _, value := range list {
			runtest.Must(r.T, out.WriteField(name, value))
		}
	}
	for label, file := range r.files {
		input := goquery.NewDocumentFromNode(r.field(form, label))
		part, err := out.CreateFormFile(input.AttrOr("name", ""), file[0])
		runtest.Must(r.T, err)
		_, err = io.WriteString(part, file[1])
		runtest.Must(r.T, err)
	}
	r.files = nil
	runtest.Must(r.T, out.Close())
	return b.String(), out.FormDataContentType()
}

// values are those that a form has with some of its fields filled.
func (r *Reader) values(form *goquery.Selection, filled map[*html.Node]string) url.Values {
	values := url.Values{}
	form.Find("input[name], textarea[name], select[name]").Each(func(_ int, field *goquery.Selection) {
		name := field.AttrOr("name", "")
		_, disabled := field.Attr("disabled")
		_, checked := field.Attr("checked")
		given, isFilled := filled[field.Nodes[0]]
		switch kind := field.AttrOr("type", ""); {
		case isFilled && kind == "radio":
			values.Set(name, field.AttrOr("value", "on"))
		case isFilled:
			values.Add(name, given)
		case disabled, kind == "submit", kind == "file", (kind == "checkbox" || kind == "radio") && !checked:
		case kind == "checkbox", kind == "radio":
			values.Add(name, field.AttrOr("value", "on"))
		case field.Is("textarea"):
			values.Add(name, field.Text())
		case field.Is("select"):
			chosen := field.Find("option[selected]")
			if chosen.Length() == 0 {
				chosen = field.Find("option").First()
			}
			values.Add(name, chosen.AttrOr("value", Plain(chosen.Text())))
		default:
			values.Add(name, field.AttrOr("value", ""))
		}
	})
	return values
}

// field returns the field that has a label.
func (r *Reader) field(form *goquery.Selection, label string) *html.Node {
	r.T.Helper()
	var labels []string
	var found []*html.Node
	form.Find("label").Each(func(_ int, l *goquery.Selection) {
		text := Plain(l.Text())
		labels = append(labels, text)
		if !strings.HasPrefix(text, label) {
			return
		}
		field := l.Find("input:not([type=hidden]), select, textarea")
		if id, named := l.Attr("for"); named {
			field = r.At.Find(fmt.Sprintf("[id=%q]", id))
		}
		found = append(found, field.Nodes...)
	})
	if len(found) == 0 {
		found = form.Find(fmt.Sprintf("[name=%q], [aria-label=%q]", label, label)).Nodes
	}
	if len(found) == 0 {
		r.T.Fatalf("the form of %s has no field %q; it has %q", r.At.URL, label, labels)
	}
	return found[0]
}

// one returns the element with a name. Links to the same place count as one.
func (r *Reader) one(selector, name string, inside ...string) *goquery.Selection {
	r.T.Helper()
	var all []string
	matches := []func(string) bool{
		func(s string) bool { return s == name },
		func(s string) bool { return strings.HasPrefix(s, name) },
	}
	for _, match := range matches {
		all = nil
		found := r.At.Find(selector).FilterFunction(func(_ int, s *goquery.Selection) bool {
			text := Plain(s.AttrOr("aria-label", s.Text()+s.AttrOr("value", "")))
			all = append(all, text)
			return match(text) || match(Plain(s.Text()))
		})
		if found = within(found, inside); found.Length() > 0 {
			inMain := func(_ int, s *goquery.Selection) bool { return s.Closest("main").Length() > 0 }
			if main := found.FilterFunction(inMain); main.Length() > 0 {
				found = main
			}
			places := map[string]bool{}
			found.Each(func(_ int, s *goquery.Selection) { places[s.AttrOr("href", s.AttrOr("formaction", ""))] = true })
			if len(places) > 1 {
				r.T.Fatalf("%d elements of %s are named %q", len(places), r.At.URL, name)
			}
			return found.First()
		}
	}
	r.T.Fatalf("nothing (%s) of %s (%d) is named %q; there are %q", selector, r.At.URL, r.At.Status, name, all)
	return nil
}

// within keeps the elements in the smallest part of the page that has a text.
func within(found *goquery.Selection, inside []string) *goquery.Selection {
	if len(inside) == 0 {
		return found
	}
	least, kept := 0, found.Slice(0, 0)
	const parts = "tr, li, article, section, fieldset, form, dl, details"
	found.Each(func(_ int, s *goquery.Selection) {
		s.ParentsFiltered(parts).EachWithBreak(func(_ int, part *goquery.Selection) bool {
			text := Plain(part.Text())
			if !strings.Contains(text, inside[0]) {
				return true
			}
			if least == 0 || len(text) < least {
				least, kept = len(text), s
			}
			return false
		})
	})
	return kept
}

// See fails unless the page shows all texts.
func (r *Reader) See(texts ...string) {
	r.T.Helper()
	shown := r.At.Text()
	for _, text := range texts {
		if !strings.Contains(shown, text) {
			r.T.Fatalf("the page %s (%d) lacks %q: %.4000s", r.At.URL, r.At.Status, text, shown)
		}
	}
}

// SeeLater loads the page again until it shows a text that the service finds out in the background.
func (r *Reader) SeeLater(text string) {
	r.T.Helper()
	runtest.Await(r.T, fmt.Sprintf("%s shows %q", r.At.URL, text), func() bool {
		if strings.Contains(r.At.Text(), text) {
			return true
		}
		r.Request(http.MethodGet, r.At.URL, nil, "none")
		return strings.Contains(r.At.Text(), text)
	})
}

// Answered fails unless the last page had a status.
func (r *Reader) Answered(status int) {
	r.T.Helper()
	if r.At.Status != status {
		r.T.Fatalf("%s answered %d, want %d: %.800s", r.At.URL, r.At.Status, status, r.At.Text())
	}
}

// Plain joins the words of a text with single spaces.
func Plain(text string) string { return strings.Join(strings.Fields(text), " ") }

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
