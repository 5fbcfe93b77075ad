package browser

import (
	"html/template"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// fakePage is a page of a console that does not exist, with what the helpers have to cope with.
var fakePage = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><head><title>Fake</title><meta name="viewport" content="width=device-width">
<style nonce="n">body { color: #111; background: #fff; } .pale { color: {{.Pale}}; }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #111; } a { color: #9cf; } .pale { color: {{.PaleInTheDark}}; } }</style></head>
<body><main><h1>Fake</h1><p class="pale">Hello {{.Name}}</p>
<form method="post" action="/"><label>Name <input name="name"></label>
<label for="kind">Kind</label> <select id="kind" name="kind"><option value="a">First</option><option value="b">Second</option></select>
<button>Save</button></form>
<table><tr><td>Ana</td><td><a href="/?row=ana">Open</a></td></tr><tr><td>Ben</td><td><a href="/?row=ben">Open</a></td></tr></table>
<p>Row {{.Row}} kind {{.Kind}}</p></main>{{.More}}</body></html>`))

// fake serves the page with what it is given.
func fake(t *testing.T, pale, paleInTheDark string, more template.HTML) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/favicon.ico" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'self'; style-src 'self' 'nonce-n'; img-src data: 'self'")
		err := fakePage.Execute(w, struct {
			Pale, PaleInTheDark template.CSS
			Name, Row, Kind     string
			More                template.HTML
		}{
			template.CSS(pale), template.CSS(paleInTheDark),
			r.FormValue("name"), r.FormValue("row"), r.FormValue("kind"), more,
		})
		if err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func TestPerson_FillsClicksAndSees(t *testing.T) {
	t.Parallel()
	p := newPerson(t, fake(t, "#333", "#ccc", "").URL)
	p.open("/")
	p.answered(http.StatusOK)
	p.fill("Name", `Ana "<b>`)
	p.fill("Kind", "Second")
	p.click("button", "Save")
	p.see(`Hello Ana "<b>`)
	p.see("kind b")
	p.click("link", "Open", "Ben")
	p.see("Row ben")
	p.lacks("Row ana")
	if p.clicks != 2 || p.fields != 2 {
		t.Errorf("%d clicks and %d fields were counted", p.clicks, p.fields)
	}
	p.accessible()
	p.fits()
}

func TestPerson_NoticesFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ more, fault string }{
		"script against the policy": {`<script>alert(1)</script>`, "Content Security Policy"},
		"style against the policy":  {`<p style="color: red">Red</p>`, "Content Security Policy"},
		"part that is missing":      {`<img alt="None" src="/none.png">`, "404"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPerson(t, fake(t, "#333", "#ccc", template.HTML(c.more)).URL)
			p.must(p.visit("/"))
			var found string
			p.await("the complaint", func() error {
				found += strings.Join(p.faults.take(), "\n")
				if !strings.Contains(found, c.fault) {
					return errNoComplaint(found)
				}
				return nil
			})
			p.must(p.visit("about:blank"))
			p.faults.take()
		})
	}
}

type errNoComplaint string

func (e errNoComplaint) Error() string { return "the page complained only of: " + string(e) }

func TestPerson_AxeLooksAtBothThemes(t *testing.T) {
	t.Parallel()
	p := newPerson(t, fake(t, "#333", "#222", "<button></button>").URL)
	p.open("/")
	for theme, want := range map[string]string{"light": "button-name", "dark": "button-name color-contrast"} {
		p.theme(theme)
		found, err := p.axe("{}")
		p.must(err)
		ids := make([]string, 0, len(found))
		for _, v := range found {
			ids = append(ids, v.ID)
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("axe finds %q in the %s theme, want %q", got, theme, want)
		}
	}
}
