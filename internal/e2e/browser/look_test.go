package browser

import (
	"fmt"
	"html/template"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// narrow is the width of a small phone, at which every page is usable.
const narrow = 375

// folderVariable names the folder that screenshots go to. Without it none are made.
const folderVariable = "ANNALS_TEST_SCREENSHOTS"

// violation is what axe finds on a page.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		FailureSummary string
	}
}

// String names the rule and the elements that break it.
func (v violation) String() string {
	nodes := make([]string, 0, len(v.Nodes))
	for _, n := range v.Nodes[:min(5, len(v.Nodes))] {
		nodes = append(nodes, fmt.Sprintf("%.300s (%.300s)", n.HTML, strings.Join(strings.Fields(n.FailureSummary), " ")))
	}
	return fmt.Sprintf("%s (%s): %s, %d elements:\n\t%s", v.ID, v.Impact, v.Help, len(v.Nodes), strings.Join(nodes, "\n\t"))
}

// ofColors are the rules that depend on the theme.
const ofColors = `{runOnly: {type: "rule", values: ["color-contrast", "link-in-text-block"]}}`

// accessible fails for what axe finds that is serious or critical, in both themes.
func (p *person) accessible() {
	p.t.Helper()
	for theme, options := range map[string]string{"light": "{}", "dark": ofColors} {
		p.theme(theme)
		found, err := p.axe(options)
		p.must(err)
		for _, v := range found {
			p.t.Errorf("axe on %s in the %s theme: %s", p.address(), theme, v)
		}
	}
	p.theme("light")
}

// axe returns what is serious or critical.
func (p *person) axe(options string) (serious []violation, err error) {
	if _, err := evaluate[chromedp.Void](p.ctx, "if (!globalThis.axe) { "+chromium.axe+"\n }; 0"); err != nil {
		return nil, err
	}
	// Without resultTypes axe describes each element that passes too, which takes longer than the check.
	found, err := evaluate[[]violation](p.ctx,
		`axe.run(document, {resultTypes: ["violations"], ...`+options+`}).then((r) => r.violations.map((v) => ({
			id: v.id, impact: v.impact, help: v.help,
			nodes: v.nodes.map((n) => ({html: n.html, failureSummary: n.failureSummary})),
		})))`)
	for _, v := range found {
		if v.Impact == "serious" || v.Impact == "critical" {
			serious = append(serious, v)
		}
	}
	return serious, err
}

// theme makes the system of the person light or dark.
func (p *person) theme(scheme string) {
	p.t.Helper()
	p.must(call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}))
}

// resize gives the window another size.
func (p *person) resize(width, height int64) {
	p.t.Helper()
	p.must(call(p.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: false,
	}))
}

// fits fails if a page is wider than a small phone, so that it scrolls sideways.
func (p *person) fits() {
	p.t.Helper()
	p.resize(narrow, 812)
	defer p.resize(1280, 900)
	wide, err := evaluate[string](p.ctx, `(() => {
		const root = document.documentElement;
		if (root.scrollWidth <= innerWidth) return "";
		const wide = [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1);
		return root.scrollWidth + " pixels: " + wide.slice(0, 5).map((e) => e.outerHTML.slice(0, 120)).join(" | ");
	})()`)
	p.must(err)
	if wide != "" {
		p.t.Errorf("%s is wider than %d pixels: %s", p.address(), narrow, wide)
	}
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// shoot makes screenshots of the whole page, light, dark and narrow, if they are asked for.
func (p *person) shoot(name string) {
	p.t.Helper()
	folder := os.Getenv(folderVariable)
	if folder == "" {
		return
	}
	p.must(os.MkdirAll(folder, 0o755))
	name = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(name), "-"), "-")
	for _, kind := range []struct {
		name, theme   string
		width, height int64
	}{{"light", "light", 1280, 900}, {"dark", "dark", 1280, 900}, {"narrow", "light", narrow, 812}} {
		p.theme(kind.theme)
		p.resize(kind.width, kind.height)
		whole := true
		shot, err := chromedp.Call(p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &whole})
		p.must(err)
		p.must(os.WriteFile(filepath.Join(folder, name+"-"+kind.name+".png"), shot.Data, 0o644))
	}
	p.theme("light")
	p.resize(1280, 900)
}

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
