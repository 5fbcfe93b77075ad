package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

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
	found, err := evaluate[[]violation](p.ctx, `axe.run(document, `+options+`).then((r) => r.violations.map((v) =>
		({id: v.id, impact: v.impact, help: v.help, nodes: v.nodes.map((n) => ({html: n.html, failureSummary: n.failureSummary}))})))`)
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
