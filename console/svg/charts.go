// Package svg draws charts, timelines and lineages for the pages of the console. Colours come from classes alone, since
// the content security policy refuses styles within a page.
package svg

import (
	"embed"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

//go:embed *.gohtml
var files embed.FS

var templates = template.Must(template.ParseFS(files, "*.gohtml"))

// render executes a template. What it writes was escaped by the template. It fails only if a template is wrong, which a
// test of each of them finds.
func render(name string, data any) template.HTML {
	b := new(strings.Builder)
	if err := templates.ExecuteTemplate(b, name, data); err != nil {
		panic(err)
	}
	return template.HTML(b.String())
}

// written returns a number with at most two decimals.
func written(f float64) string { return strconv.FormatFloat(math.Round(f*100)/100, 'f', -1, 64) }

// percent returns a share of a width: so a drawing is as wide as the page allows, and its text keeps its size.
func percent(share float64) string { return written(share*100) + "%" }

// cut returns as much of a text as fits a width, with an ellipsis for the rest.
func cut(text string, width, fontSize float64) string {
	used, fits := 0.0, 0 // fits is the end of what fits together with an ellipsis
	for i, r := range text {
		if used+fontSize <= width && runeWidth(r) > 0 {
			fits = i
		}
		if used += runeWidth(r) * fontSize; used > width {
			return strings.TrimRightFunc(text[:fits], unicode.IsSpace) + "…"
		}
	}
	return text
}

// runeWidth is about the width of a character in usual fonts, rather too wide than too narrow, in units of their size.
func runeWidth(r rune) float64 {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Cf):
		return 0
	case strings.ContainsRune(" .,:;'|!()[]iIjlftr", r):
		return 0.36
	case strings.ContainsRune("mwMW@%—", r):
		return 0.98
	case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana), r >= 0x1f000:
		return 1.1
	case unicode.IsUpper(r) || r >= 0x250:
		return 0.74
	}
	return 0.6
}

// Series is a part of each bar.
type Series struct{ Name, Class string }

// Bar is a bar with a value for each series.
type Bar struct {
	// Label names the bar in the table and when pointed at, Tick briefly below it where there is room.
	Label, Tick string
	// Href leads to what the bar counts.
	Href   string
	Values []float64
}

// Bars is a chart of stacked bars.
type Bars struct {
	// Label describes the chart, Heading the labels of its bars.
	Label, Heading string
	Series         []Series
	Bars           []Bar
	// Format writes a value; without it values are whole numbers.
	Format func(float64) string
}

const (
	plotHeight  = 132.0
	plotTop     = 16.0 // the room for the value of the top line
	axisHeight  = 20.0
	maxTicks    = 6
	leastBar    = 2.0 // so that one failure among thousands of calls is seen
	leastColumn = 12  // bars are not wider than if there were so many
)

// What the template of bars draws.
type (
	label  struct{ X, Y, Anchor, Text string }
	part   struct{ Class, X, Width, Y, Height string }
	column struct {
		Label, Href, X, Width string
		Parts                 []part
	}
)

// SVG returns the chart. The links of the bars are in the table too, so the keyboard does not stop at each bar.
func (b Bars) SVG() template.HTML {
	d := struct {
		Role, Label       string
		Top, Plot, Height float64
		Columns           []column
		Lines, Ticks      []label
	}{Role: "img", Label: b.Label, Top: plotTop, Plot: plotHeight, Height: plotTop + plotHeight + axisHeight}
	top, n := b.top(), float64(max(len(b.Bars), leastColumn))
	for i, bar := range b.Bars {
		if bar.sum() == 0 {
			continue
		}
		if bar.Href != "" {
			d.Role = "group" // an image has no links
		}
		c := column{Label: b.describe(bar), Href: bar.Href, X: percent(float64(i) / n), Width: percent(1 / n)}
		y := plotTop + plotHeight
		for s, v := range b.values(bar) {
			if v > 0 {
				height := max(plotHeight*v/top, leastBar)
				y -= height
				c.Parts = append(c.Parts, part{
					b.Series[s].Class, percent((float64(i) + 0.1) / n), percent(0.8 / n), written(y), written(height),
				})
			}
		}
		d.Columns = append(d.Columns, c)
	}
	for _, share := range []float64{0, 0.5, 1} {
		line := label{Y: written(plotTop + plotHeight*(1-share)), Text: b.format(top * share)}
		if share == 0 || share == 0.5 && (line.Text == b.format(0) || line.Text == b.format(top)) {
			line.Text = ""
		}
		d.Lines = append(d.Lines, line)
	}
	for i := 0; i < len(b.Bars); i += (int(n) + maxTicks - 1) / maxTicks {
		tick := label{X: percent((float64(i) + 0.5) / n), Anchor: "middle", Text: b.Bars[i].Tick}
		if i == 0 {
			tick.X, tick.Anchor = "0%", "start"
		}
		d.Ticks = append(d.Ticks, tick)
	}
	return render("bars", d)
}

// Table returns the values as a table. Bars without any are left out.
func (b Bars) Table() template.HTML { return render("table", b) }

// Legend returns the names of the series with their colours.
func (b Bars) Legend() template.HTML { return render("legend", b) }

// Filled returns the bars that are not empty.
func (b Bars) Filled() (list []Bar) {
	for _, bar := range b.Bars {
		if bar.sum() != 0 {
			list = append(list, bar)
		}
	}
	return list
}

// Written returns the values of a bar as text.
func (b Bars) Written(bar Bar) (texts []string) {
	for _, v := range b.values(bar) {
		texts = append(texts, b.format(v))
	}
	return texts
}

// values returns a value for each series.
func (b Bars) values(bar Bar) []float64 {
	return append(bar.Values, make([]float64, len(b.Series))...)[:len(b.Series)]
}

func (b Bars) describe(bar Bar) string {
	parts := []string{}
	for s, v := range b.values(bar) {
		if v != 0 {
			parts = append(parts, b.format(v)+" "+b.Series[s].Name)
		}
	}
	return bar.Label + ": " + strings.Join(parts, ", ")
}

func (b Bars) format(v float64) string {
	if b.Format != nil {
		return b.Format(v)
	}
	return written(math.Round(v))
}

// top is the value of the top line: a round number that no bar exceeds.
func (b Bars) top() float64 {
	most := 0.0
	for _, bar := range b.Bars {
		most = max(most, bar.sum())
	}
	if most == 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(most)))
	for _, n := range []float64{1, 2, 4, 6, 8} {
		if n*unit >= most {
			return n * unit
		}
	}
	return 10 * unit
}

func (bar Bar) sum() (sum float64) {
	for _, v := range bar.Values {
		sum += max(v, 0)
	}
	return sum
}

// Progress returns a bar that shows how much of a total is done. Without a total it shows that something goes on.
func Progress(label string, done, total int64) template.HTML {
	return render("progress", struct {
		Label       string
		Done, Total int64
	}{label, min(max(done, 0), total), total})
}

// Moment is something with a time in each row of a timeline, the zero time where it has none.
type Moment struct {
	Title, Href, Class string
	At                 []time.Time
}

// Timeline draws moments in rows over a window of time. The first moment of those that lie on one another is seen.
type Timeline struct {
	Label    string
	Rows     []string
	From, To time.Time
	// Zone is where the times are read.
	Zone    *time.Location
	Moments []Moment
	// Narrow returns the reference of a narrower window, to which marks that lie on one another lead.
	Narrow func(from, to time.Time) string
}

const (
	rowHeight  = 48
	markHeight = 20
	cells      = 160 // marks within a cell are drawn as one
	maxThreads = 60  // more lines between rows are a thicket
	right      = 0.985
	outside    = 2 * cells // is added to the cell of what is outside of the window
)

// What the template of timelines draws.
type (
	mark struct {
		Class, Href, Label, X string
		Y, Width, cell, count int
	}
	thread struct {
		Class, X1, X2 string
		Y1, Y2        int
	}
)

// SVG returns the timeline.
func (t Timeline) SVG() template.HTML {
	axis := rowHeight * len(t.Rows)
	d := struct {
		Label        string
		Axis, Height int
		Ticks, Names []label
		Threads      []thread
		Marks        []*mark
	}{Label: t.Label, Axis: axis, Height: axis + axisHeight, Ticks: t.ticks()}
	for i, name := range t.Rows {
		d.Names = append(d.Names, label{Y: strconv.Itoa(rowHeight*(i+1) - 4), Text: name})
	}
	byCell := map[[2]int]*mark{}
	for _, moment := range t.Moments {
		last := -1
		for row, at := range moment.At {
			if row >= len(t.Rows) || at.IsZero() {
				continue
			}
			y := rowHeight*(row+1) - 4 - markHeight
			if last >= 0 && len(t.Moments) <= maxThreads {
				d.Threads = append(d.Threads, thread{
					moment.Class, percent(t.x(moment.At[last])), percent(t.x(at)), rowHeight*(last+1) - 4, y,
				})
			}
			last = row
			cell, class := int(t.x(at)*cells), moment.Class
			if at.Before(t.From) || at.After(t.To) {
				cell, class = outside+cell, class+" outside"
			}
			m := byCell[[2]int{row, cell}]
			if m == nil {
				m = &mark{Class: class, Href: moment.Href, X: percent(t.x(at)), Y: y, Width: 4, cell: cell}
				m.Label = moment.Title + ", " + at.In(t.Zone).Format("2 January 2006 15:04:05 MST")
				byCell[[2]int{row, cell}], d.Marks = m, append(d.Marks, m)
			}
			m.count++
		}
	}
	for _, m := range d.Marks {
		if m.count > 1 {
			m.Label, m.Class, m.Width = strconv.Itoa(m.count)+" × "+m.Label, m.Class+" many", 8
		}
		if m.count > 1 && m.cell < outside {
			width := t.To.Sub(t.From) / cells
			from := t.From.Add(time.Duration(m.cell) * width)
			m.Href = t.Narrow(from, from.Add(2*width))
		}
	}
	return render("timeline", d)
}

// x is where a time is, as a share of the width. What is outside of the window is at its edge.
func (t Timeline) x(at time.Time) float64 {
	return min(max(float64(at.Sub(t.From))/float64(max(t.To.Sub(t.From), 1)), 0), 1) * right
}

const day = 24 * time.Hour

var tickSteps = []time.Duration{
	time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour,
	6 * time.Hour, day, 2 * day, 7 * day, 14 * day, 30 * day, 91 * day, 365 * day, 3650 * day,
}

// tickLayout is how ticks of a step are written.
func tickLayout(step time.Duration) string {
	switch {
	case step < time.Minute:
		return time.TimeOnly
	case step < 6*time.Hour:
		return "15:04"
	case step < day:
		return "2 Jan 15:04"
	case step < 30*day:
		return "2 Jan"
	}
	return "2 Jan 2006"
}

// ticks returns a few round times of the window.
func (t Timeline) ticks() (list []label) {
	n := 0
	for n < len(tickSteps)-1 && t.To.Sub(t.From)/tickSteps[n] >= maxTicks {
		n++
	}
	_, offset := t.From.In(t.Zone).Zone()
	shift, step := time.Duration(offset)*time.Second, tickSteps[n]
	for at := t.From.Add(shift).Truncate(step).Add(step - shift); !at.After(t.To); at = at.Add(step) {
		if x := t.x(at); x >= 0.04 && x <= 0.96 {
			list = append(list, label{X: percent(x), Text: at.In(t.Zone).Format(tickLayout(step))})
		}
	}
	return list
}
