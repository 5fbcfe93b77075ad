package svg

import (
	"html/template"
	"strconv"
	"time"
)

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
			cell := int(t.x(at) * cells)
			m := byCell[[2]int{row, cell}]
			if m == nil {
				m = &mark{Class: moment.Class, Href: moment.Href, X: percent(t.x(at)), Y: y, Width: 4, cell: cell}
				m.Label = moment.Title + ", " + at.In(t.Zone).Format("2 January 2006 15:04:05 MST")
				if at.Before(t.From) || at.After(t.To) {
					m.Class += " outside"
				}
				byCell[[2]int{row, cell}], d.Marks = m, append(d.Marks, m)
			}
			m.count++
		}
	}
	for _, m := range d.Marks {
		if m.count > 1 {
			width := t.To.Sub(t.From) / cells
			from := t.From.Add(time.Duration(m.cell) * width)
			m.Label, m.Href = strconv.Itoa(m.count)+" × "+m.Label, t.Narrow(from, from.Add(2*width))
			m.Class, m.Width = m.Class+" many", 8
		}
	}
	return render("timeline", d)
}

// x is where a time is, as a share of the width. What is outside of the window is at its edge.
func (t Timeline) x(at time.Time) float64 {
	return min(max(float64(at.Sub(t.From))/float64(max(t.To.Sub(t.From), 1)), 0), 1) * right
}

const day = 24 * time.Hour

var tickSteps = []struct {
	step   time.Duration
	layout string
}{
	{time.Second, "15:04:05"},
	{10 * time.Second, "15:04:05"},
	{time.Minute, "15:04"},
	{5 * time.Minute, "15:04"},
	{15 * time.Minute, "15:04"},
	{time.Hour, "15:04"},
	{3 * time.Hour, "15:04"},
	{6 * time.Hour, "2 Jan 15:04"},
	{day, "2 Jan"},
	{2 * day, "2 Jan"},
	{7 * day, "2 Jan"},
	{14 * day, "2 Jan"},
	{30 * day, "2 Jan 2006"},
	{91 * day, "2 Jan 2006"},
	{365 * day, "2006"},
	{3650 * day, "2006"},
}

// ticks returns a few round times of the window.
func (t Timeline) ticks() (list []label) {
	n := 0
	for n < len(tickSteps)-1 && t.To.Sub(t.From)/tickSteps[n].step >= maxTicks {
		n++
	}
	_, offset := t.From.In(t.Zone).Zone()
	shift, step := time.Duration(offset)*time.Second, tickSteps[n].step
	for at := t.From.Add(shift).Truncate(step).Add(step - shift); !at.After(t.To); at = at.Add(step) {
		if x := t.x(at); x >= 0.04 && x <= 0.96 {
			list = append(list, label{X: percent(x), Text: at.In(t.Zone).Format(tickSteps[n].layout)})
		}
	}
	return list
}
