package svg

import (
	"html/template"
	"math"
	"strings"
)

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
