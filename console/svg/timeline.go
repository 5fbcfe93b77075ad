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
