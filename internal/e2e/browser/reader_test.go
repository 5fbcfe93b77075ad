package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"

	"github.com/annals-project/annals/internal/runtest"
)

// reader is somebody at a browser that runs no scripts: it follows links and submits forms, and does nothing else.
type reader struct {
	t    *testing.T
	base string
	http *http.Client
	// at is the page that the reader sees.
	at document
}

// document is a page as the server sent it.
type document struct {
	*goquery.Selection
	url    *url.URL
	status int
	header http.Header
	body   string
}

// newReader is somebody without a session at the console at base.
func newReader(t *testing.T, base string) *reader {
	t.Helper()
	jar, err := cookiejar.New(nil)
	runtest.Must(t, err)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	return &reader{t: t, base: base, http: &http.Client{Jar: jar, Transport: transport}}
}

// open goes to an address of the console, as somebody who types it.
func (r *reader) open(path string) document {
	r.t.Helper()
	target, err := url.Parse(r.base + path)
	runtest.Must(r.t, err)
	return r.request(http.MethodGet, target, nil, "none")
}

// request makes a request as a browser does, follows redirects, and returns the page at their end.
func (r *reader) request(method string, target *url.URL, form url.Values, site string) document {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, target.String(), strings.NewReader(form.Encode()))
	runtest.Must(r.t, err)
	req.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	req.Header.Set("Sec-Fetch-Site", site)
	req.Header.Set("Sec-Fetch-Mode", "navigate")
	req.Header.Set("Sec-Fetch-Dest", "document")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", target.Scheme+"://"+target.Host)
	}
	res, err := r.http.Do(req)
	runtest.Must(r.t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	runtest.Must(r.t, err)
	page, err := goquery.NewDocumentFromReader(strings.NewReader(string(body)))
	runtest.Must(r.t, err)
	r.at = document{page.Selection, res.Request.URL, res.StatusCode, res.Header, string(body)}
	return r.at
}

// follow follows the one link with a name, in the part of the page that has the text of inside.
func (r *reader) follow(name string, inside ...string) document {
	r.t.Helper()
	link := r.one("a[href]", name, inside...)
	target, err := r.at.url.Parse(link.AttrOr("href", ""))
	runtest.Must(r.t, err)
	return r.request(http.MethodGet, target, nil, "same-origin")
}

// submit fills the fields of the form that has a button with a name, and submits it with the button. Fields are named
// by their labels, or by their names where no label shows.
func (r *reader) submit(button string, fields map[string]string, inside ...string) document {
	r.t.Helper()
	pressed := r.one("button, input[type=submit]", button, inside...)
	form := pressed.Closest("form")
	if id, named := pressed.Attr("form"); named {
		form = r.at.Find("form#" + id)
	}
	if form.Length() != 1 {
		r.t.Fatalf("the button %q of %s has no form", button, r.at.url)
	}
	values := r.values(form)
	for label, value := range fields {
		values.Set(r.field(form, label), value)
	}
	if name, named := pressed.Attr("name"); named {
		values.Set(name, pressed.AttrOr("value", ""))
	}
	target, err := r.at.url.Parse(pressed.AttrOr("formaction", form.AttrOr("action", "")))
	runtest.Must(r.t, err)
	if strings.EqualFold(form.AttrOr("method", "get"), http.MethodGet) {
		target.RawQuery = values.Encode()
		return r.request(http.MethodGet, target, nil, "same-origin")
	}
	return r.request(http.MethodPost, target, values, "same-origin")
}

// values are those that a form has before somebody fills it.
func (r *reader) values(form *goquery.Selection) url.Values {
	values := url.Values{}
	form.Find("input[name], textarea[name], select[name]").Each(func(_ int, field *goquery.Selection) {
		name := field.AttrOr("name", "")
		_, disabled := field.Attr("disabled")
		_, checked := field.Attr("checked")
		switch kind := field.AttrOr("type", ""); {
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
			values.Add(name, chosen.AttrOr("value", plain(chosen.Text())))
		default:
			values.Add(name, field.AttrOr("value", ""))
		}
	})
	return values
}

// field returns the name of the field that has a label.
func (r *reader) field(form *goquery.Selection, label string) string {
	r.t.Helper()
	var labels, names []string
	form.Find("label").Each(func(_ int, l *goquery.Selection) {
		text := plain(l.Text())
		labels = append(labels, text)
		if !strings.HasPrefix(text, label) {
			return
		}
		field := l.Find("input, select, textarea")
		if id, named := l.Attr("for"); named {
			field = r.at.Find(fmt.Sprintf("[id=%q]", id))
		}
		names = append(names, field.AttrOr("name", ""))
	})
	if len(names) == 0 && form.Find(fmt.Sprintf("[name=%q], [aria-label=%q]", label, label)).Length() > 0 {
		return form.Find(fmt.Sprintf("[name=%q], [aria-label=%q]", label, label)).First().AttrOr("name", "")
	}
	if len(names) == 0 {
		r.t.Fatalf("the form of %s has no field %q; it has %q", r.at.url, label, labels)
	}
	return names[0]
}

// one returns the element with a name. Links to the same place count as one.
func (r *reader) one(selector, name string, inside ...string) *goquery.Selection {
	r.t.Helper()
	var all []string
	matches := []func(string) bool{
		func(s string) bool { return s == name },
		func(s string) bool { return strings.HasPrefix(s, name) },
	}
	for _, match := range matches {
		all = nil
		found := r.at.Find(selector).FilterFunction(func(_ int, s *goquery.Selection) bool {
			text := plain(s.AttrOr("aria-label", s.Text()+s.AttrOr("value", "")))
			all = append(all, text)
			return match(text) || match(plain(s.Text()))
		})
		if found = within(found, inside); found.Length() > 0 {
			inMain := func(_ int, s *goquery.Selection) bool { return s.Closest("main").Length() > 0 }
			if main := found.FilterFunction(inMain); main.Length() > 0 {
				found = main
			}
			places := map[string]bool{}
			found.Each(func(_ int, s *goquery.Selection) { places[s.AttrOr("href", s.AttrOr("formaction", ""))] = true })
			if len(places) > 1 {
				r.t.Fatalf("%d elements of %s are named %q", len(places), r.at.url, name)
			}
			return found.First()
		}
	}
	r.t.Fatalf("nothing (%s) of %s (%d) is named %q; there are %q", selector, r.at.url, r.at.status, name, all)
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
			text := plain(part.Text())
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

// see fails unless the page shows a text.
func (r *reader) see(text string) {
	r.t.Helper()
	if shown := plain(r.at.Find("body").Text()); !strings.Contains(shown, text) {
		r.t.Fatalf("the page %s (%d) lacks %q: %.1500s", r.at.url, r.at.status, text, shown)
	}
}

// seeLater loads the page again until it shows a text that the service finds out in the background.
func (r *reader) seeLater(text string) {
	r.t.Helper()
	runtest.Await(r.t, fmt.Sprintf("%s shows %q", r.at.url, text), func() bool {
		if strings.Contains(plain(r.at.Find("body").Text()), text) {
			return true
		}
		r.request(http.MethodGet, r.at.url, nil, "none")
		return strings.Contains(plain(r.at.Find("body").Text()), text)
	})
}

// answered fails unless the last page had a status.
func (r *reader) answered(status int) {
	r.t.Helper()
	if r.at.status != status {
		r.t.Fatalf("%s answered %d, want %d: %.800s", r.at.url, r.at.status, status, plain(r.at.Find("body").Text()))
	}
}

// plain joins the words of a text with single spaces.
func plain(text string) string { return strings.Join(strings.Fields(text), " ") }
