package svg

import (
	"html/template"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

const hostile = "\"><script>alert(1)</script><img src=x onerror=alert(1)>' onload='x\x00\u202e"

// drawings are all drawings with a text in every place that takes one.
func drawings(text, href string) map[string]template.HTML {
	bars := Bars{
		Label: text, Heading: text, Series: []Series{{text, text}, {text, text}},
		Bars:   []Bar{{Label: text, Tick: text, Href: href, Values: []float64{1, 2}}, {Label: text, Values: []float64{3}}},
		Format: func(float64) string { return text },
	}
	at := time.Date(2026, time.May, 1, 0, 0, 0, 0, time.UTC)
	line := Timeline{
		Label: text, Rows: []string{text, text}, From: at, To: at.Add(time.Hour), Zone: time.UTC,
		Moments: []Moment{{Title: text, Href: href, Class: text, At: []time.Time{at, at.Add(time.Minute)}}, {At: []time.Time{at}}},
		Narrow:  func(time.Time, time.Time) string { return href },
	}
	graph := Lineage{Label: text, Folded: func(int) string { return text }, Edges: []Edge{{"0", "1", text}, {"1", "0", text}}}
	for i := range 60 {
		n := testNode(i)
		n.Title, n.Subtitle, n.Class, n.Href = text, text, text, href
		n.Inputs, n.Outputs = Link{text, href}, Link{text, href}
		graph.Nodes = append(graph.Nodes, n)
	}
	lineage := graph.Draw()
	return map[string]template.HTML{
		"bars": bars.SVG(), "table": bars.Table(), "legend": bars.Legend(),
		"progress": Progress(text, 1, 2), "timeline": line.SVG(), "lineage": lineage.SVG, "lists": lineage.Lists,
	}
}

func TestDrawings_StoredMarkup_ShowsAsText(t *testing.T) {
	for _, href := range []string{"javascript:alert(1)", "data:text/html,x", "\tjavascript:x", hostile} {
		for name, drawing := range drawings(hostile, href) {
			if !strings.Contains(string(drawing), "&lt;script&gt;") {
				t.Errorf("%s does not show the text", name)
			}
			for _, n := range parse(t, string(drawing)) {
				if n.Data == "script" && n.Parent.Data != "head" || n.Data == "img" {
					t.Errorf("%s has an element %s", name, n.Data)
				}
				for _, a := range n.Attr {
					if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "src" ||
						a.Key == "href" && strings.Contains(a.Val, ":") {
						t.Errorf("%s has %s=%q", name, a.Key, a.Val)
					}
				}
			}
		}
	}
}

func TestDrawings_Links_AreKept(t *testing.T) {
	for _, href := range []string{"/p/x?y=1&z=2", "?from=a", "#x"} {
		for name, drawing := range drawings("text", href) {
			links := strings.Contains(string(drawing), `href="`+html.EscapeString(href)+`"`)
			if want := name != "legend" && name != "progress"; links != want {
				t.Errorf("%s links to %s: %t", name, href, links)
			}
		}
	}
}

func TestDrawings_HaveANameAndARole(t *testing.T) {
	for name, drawing := range drawings("text", "/") {
		for _, n := range parse(t, string(drawing)) {
			if (n.Data == "svg" || n.Data == "progress" || n.Data == "a" && n.Parent.Data == "svg") && attribute(n, "aria-label") == "" {
				t.Errorf("%s of %s has no name", n.Data, name)
			}
			// An image must not have what can be focused: readers of screens do not find it.
			if n.Data == "a" && attribute(n.Parent, "role") == "img" {
				t.Errorf("an image has a link in %s", name)
			}
		}
	}
	plain := Bars{Series: []Series{{"a", "a"}}, Bars: []Bar{{Values: []float64{1}}}}
	if !strings.Contains(string(plain.SVG()), `role="img"`) {
		t.Error("a chart without links is an image")
	}
}

func TestCut_TextThatIsTooWide_EndsWithAnEllipsis(t *testing.T) {
	for text, want := range map[string]string{
		"short": "short", "": "", strings.Repeat("x", 100): "xxxxxxxxxxx…",
		strings.Repeat("日", 100): "日日日日日日…", strings.Repeat("e\u0301", 100): strings.Repeat("e\u0301", 11) + "…",
	} {
		if got := cut(text, 80, 10); got != want {
			t.Errorf("%q is cut to %q, not to %q", text, got, want)
		}
	}
}

func TestBars_LowValues_AreSeenAndNoBarExceedsThePlot(t *testing.T) {
	b := Bars{
		Label: "Calls", Heading: "Time", Series: []Series{{"accepted", "good"}, {"rejected", "bad"}},
		Bars: []Bar{
			{Label: "12:00", Tick: "12:00", Href: "?from=12", Values: []float64{9_950, 1}},
			{Label: "12:15", Tick: "12:15", Values: []float64{0, 0}},
			{Label: "12:30", Values: []float64{0, 1}},
		},
	}
	for _, n := range parse(t, string(b.SVG())) {
		if n.Data == "rect" && strings.HasPrefix(attribute(n, "class"), "series") {
			if number(t, attribute(n, "height")) < leastBar || number(t, attribute(n, "y")) < 0 {
				t.Errorf("a bar at %s is %s high", attribute(n, "y"), attribute(n, "height"))
			}
		}
	}
	checkGolden(t, "bars.html", string(b.SVG()+b.Legend()+b.Table()))
}

func TestTimeline_Golden(t *testing.T) {
	at := func(day, hour int) time.Time { return time.Date(2026, time.May, day, hour, 0, 0, 0, time.UTC) }
	line := Timeline{
		Label: "Timeline", Rows: []string{"Occurred", "Arrived", "Searchable"}, From: at(1, 0), To: at(31, 0), Zone: time.UTC,
		Moments: []Moment{
			{Title: "Planning call", Href: "/trace/1", Class: "root", At: []time.Time{at(3, 9), at(5, 10), at(5, 11)}},
			{Title: "The launch is on 3 June", Href: "/trace/2", At: []time.Time{at(3, 9), at(5, 10), {}}},
			{Title: "Older too", Href: "/trace/4", At: []time.Time{at(1, 0).AddDate(-3, 0, 0)}},
			{Title: "Older", Href: "/trace/3", At: []time.Time{at(1, 0).AddDate(-2, 0, 0), at(20, 10), at(20, 13)}},
		},
		Narrow: func(from, to time.Time) string {
			return "/trace/1/timeline?from=" + from.Format(time.RFC3339) + "&to=" + to.Format(time.RFC3339)
		},
	}
	checkGolden(t, "timeline.svg", string(line.SVG()))
}

func TestTimeline_Ticks_AreRoundAndFew(t *testing.T) {
	from := time.Date(2026, time.March, 1, 7, 13, 11, 0, time.UTC)
	for window := time.Second; window < 100*365*day; window *= 3 {
		line := Timeline{From: from, To: from.Add(window), Zone: time.FixedZone("", 19800)}
		ticks := line.ticks()
		if len(ticks) > maxTicks || window > 10*time.Second && len(ticks) == 0 {
			t.Errorf("%s has %d ticks", window, len(ticks))
		}
		for _, tick := range ticks {
			if window > time.Minute && strings.HasSuffix(tick.Text, ":13") {
				t.Errorf("%s has a tick at %s", window, tick.Text)
			}
		}
	}
}
