package comprehend

import (
	"strconv"
	"strings"
	"time"

	"github.com/annals-project/annals/domain/instant"
)

// written reads a date in digits: 2025-06-03, 2025-06-03T10:15Z, 2025/06/03, 03.06.2025, and
// 13/06/2025 or 06/13/2025 if only one order of day and month is possible.
func (r *dateReader) written(i int) (dated, bool) {
	text := r.tokens[i].text
	if len(text) < 8 || len(text) > 40 || !r.tokens[i].numeric() {
		return dated{}, false
	}
	if len(text) >= 10 && text[4] == '-' && text[7] == '-' {
		t, err := instant.Parse(text)
		if err != nil {
			return dated{}, false
		}
		if len(text) == 10 {
			return oneDay(i, i+1, r.date(t.Date()), false), true
		}
		start := t.Truncate(time.Minute).In(r.today.Location())
		return dated{from: i, to: i + 1, start: start, end: start.Add(time.Minute), clock: true}, true
	}
	sep := "/"
	if strings.Count(text, ".") == 2 {
		sep = "."
		switch r.low(i - 1) {
		case "version", "release", "v", "section", "build":
			return dated{}, false
		}
	}
	parts := strings.Split(text, sep)
	if len(parts) != 3 {
		return dated{}, false
	}
	var n [3]int
	for k, p := range parts {
		v, err := strconv.Atoi(p)
		if err != nil || len(p) > 4 {
			return dated{}, false
		}
		n[k] = v
	}
	year, month, day := n[2], n[1], n[0]
	switch {
	case len(parts[0]) == 4 && sep == "/":
		year, month, day = n[0], n[1], n[2]
	case len(parts[2]) != 4:
		return dated{}, false
	case sep == "/" && n[0] > 12:
	case sep == "/" && n[1] > 12:
		month, day = n[0], n[1]
	case sep == "/" && n[0] != n[1]:
		return dated{}, false
	}
	if year < 1900 || year > 2200 {
		return dated{}, false // more often a version or an address
	}
	t, ok := r.calendar(year, time.Month(month), day)
	return oneDay(i, i+1, t, false), ok
}

// calendar returns a day; ok is false if it does not exist.
func (r *dateReader) calendar(year int, month time.Month, day int) (time.Time, bool) {
	t := r.date(year, month, day)
	return t, t.Month() == month && t.Day() == day
}

// dayMonth reads "3 June 2025", "3rd of June", "the 3rd of June 2025" (from its number on), "3-5
// June".
func (r *dateReader) dayMonth(i int) (dated, bool) {
	first, last, ok := dayRange(r.low(i))
	if !ok || r.low(i-1) == "." || r.low(i-1) == "$" {
		return dated{}, false
	}
	at := i + 1
	if low := r.low(at); low == "to" || low == "-" || low == "–" || low == "and" {
		end, ok := dayOfMonth(r.low(at + 1))
		if !ok || end <= first || first != last || low == "and" && end > first+1 && r.low(i-1) != "between" {
			return dated{}, false
		}
		last, at = end, at+2
	}
	if r.low(at) == "of" {
		at++
	}
	month, ok := r.monthAt(at)
	if !ok {
		return dated{}, false
	}
	return r.daysOfMonth(i, r.afterMonth(at), month, first, last)
}

// monthDay reads "June 3", "June 3rd, 2025", "Jun. 3-5 2025".
func (r *dateReader) monthDay(i int) (dated, bool) {
	month, ok := r.monthAt(i)
	if !ok {
		return dated{}, false
	}
	at := r.afterMonth(i)
	if r.low(at) == "the" {
		at++
	}
	first, last, ok := dayRange(r.low(at))
	if !ok || r.low(at+1) == ":" || r.low(at+1) == "%" || r.low(at+1) == "am" || r.low(at+1) == "pm" {
		return dated{}, false
	}
	return r.daysOfMonth(i, at+1, month, first, last)
}

func (r *dateReader) monthAt(i int) (time.Month, bool) {
	if i >= len(r.tokens) {
		return 0, false
	}
	return r.month(i)
}

// afterMonth returns the token after the name of a month and the full stop of its short form.
func (r *dateReader) afterMonth(i int) int {
	if len(r.low(i)) <= 4 && r.low(i+1) == "." && i+2 < len(r.tokens) {
		return i + 2
	}
	return i + 1
}

// daysOfMonth adds the year that may follow the days of a month.
func (r *dateReader) daysOfMonth(from, at int, month time.Month, first, last int) (dated, bool) {
	yearAt := at
	if r.low(at) == "," || r.low(at) == "of" {
		yearAt++
	}
	if year, ok := yearOf(r.low(yearAt)); ok {
		a, ok1 := r.calendar(year, month, first)
		b, ok2 := r.calendar(year, month, last)
		return dated{from: from, to: yearAt + 1, start: a, end: b.AddDate(0, 0, 1)}, ok1 && ok2
	}
	a, ok := r.nearest(from, month, first)
	if !ok {
		return dated{}, false
	}
	b, ok := r.calendar(a.Year(), month, last)
	return dated{from: from, to: at, start: a, end: b.AddDate(0, 0, 1), relative: true}, ok
}

// weekdayDate reads "Tuesday, 3 June 2025" and "Tue June 3".
func (r *dateReader) weekdayDate(i int) (dated, bool) {
	if _, ok := r.weekdayName(i); !ok {
		return dated{}, false
	}
	at := i + 1
	if r.low(at) == "," || r.low(at) == "." {
		at++
	}
	if r.low(at) == "the" {
		at++
	}
	if at >= len(r.tokens) || !r.tokens[at].word {
		return dated{}, false
	}
	for _, read := range []func(int) (dated, bool){r.written, r.dayMonth, r.monthDay} {
		if d, ok := read(at); ok {
			d.from = i
			return d, true
		}
	}
	return dated{}, false
}

// monthYear reads "June 2025" and "June of 2025".
func (r *dateReader) monthYear(i int) (dated, bool) {
	month, ok := r.month(i)
	if _, impossible := dayOfMonth(r.low(i - 1)); !ok || impossible { // "31 June 2025"
		return dated{}, false
	}
	at := r.afterMonth(i)
	if r.low(at) == "," || r.low(at) == "of" {
		at++
	}
	year, ok := yearOf(r.low(at))
	if !ok {
		return dated{}, false
	}
	return r.monthOf(i, at+1, year, month, false), true
}

// quarter reads "Q3 2025".
func (r *dateReader) quarter(i int) (dated, bool) {
	low := r.low(i)
	year, ok := yearOf(r.low(i + 1))
	if !ok || len(low) != 2 || low[0] != 'q' || low[1] < '1' || low[1] > '4' {
		return dated{}, false
	}
	start := r.date(year, time.Month(3*int(low[1]-'1')+1), 1)
	return dated{from: i, to: i + 2, start: start, end: start.AddDate(0, 3, 0)}, true
}
