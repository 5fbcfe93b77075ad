package comprehend

import (
	"strings"
	"time"
)

// inWeek returns a weekday of the week of a day.
func inWeek(of time.Time, weekday int) time.Time { return monday(of).AddDate(0, 0, (weekday+6)%7) }

// week reads the expressions that name a week: "last week", "the week before last", "two weeks ago".
func (r *dateReader) week(i int) (dated, bool) {
	if r.low(i) == "the" {
		i++
	}
	if i >= len(r.tokens) {
		return dated{}, false
	}
	for _, read := range []func(int) (dated, bool){r.lastNext, r.askedAgo} {
		if d, ok := read(i); ok && d.start.AddDate(0, 0, 7).Equal(d.end) {
			return d, true
		}
	}
	return dated{}, false
}

// weekdayOfWeek reads "a week ago on Friday", "last week Friday" and "Friday of last week".
func (r *dateReader) weekdayOfWeek(i int) (dated, bool) {
	if day, ok := r.weekdayName(i); ok {
		at := i + 1
		if partsOfDay[r.low(at)] {
			at++
		}
		if low := r.low(at); low == "of" || low == "in" || low == "," {
			at++
		}
		d, ok := r.week(at)
		return oneDay(i, d.to, inWeek(d.start, day), true), ok
	}
	d, ok := r.week(i)
	if !ok {
		return dated{}, false
	}
	at := d.to
	if low := r.low(at); low == "on" || low == "," {
		at++
	}
	day, ok := r.weekdayName(at)
	if !ok || verbWeekdays[r.low(at)] && !r.closes(at+1) {
		return dated{}, false
	}
	return oneDay(i, at+1, inWeek(d.start, day), true), true
}

// weekOf reads "the week of 12 May".
func (r *dateReader) weekOf(i int) (dated, bool) {
	if r.low(i) != "week" || r.low(i+1) != "of" {
		return dated{}, false
	}
	at := i + 2
	if r.low(at) == "the" {
		at++
	}
	if at >= len(r.tokens) {
		return dated{}, false
	}
	for _, read := range []func(int) (dated, bool){r.written, r.dayMonth, r.monthDay} {
		if d, ok := read(at); ok && d.inRange() {
			start := monday(midnight(d.start))
			return dated{from: i, to: d.to, start: start, end: start.AddDate(0, 0, 7), relative: d.relative}, true
		}
	}
	return dated{}, false
}

// rolling reads spans that end today or begin today: "the last 3 days", "the past week", "the next two
// weeks".
func (r *dateReader) rolling(i int) (dated, bool) {
	sign := -1
	switch r.low(i) {
	case "last", "past", "previous":
	case "next", "coming":
		sign = 1
	default:
		return dated{}, false
	}
	n, counted := number(r.low(i + 1))
	at := i + 1
	if counted {
		at++
	} else if n = 1; sign > 0 || r.low(i-1) != "the" && r.low(i) != "past" || r.low(i-1) == "this" {
		return dated{}, false // "last week" is that of the calendar
	}
	if n < 1 || n > 1000 || r.low(at+1) == "of" {
		return dated{}, false
	}
	n *= sign
	var far time.Time
	switch strings.TrimSuffix(r.low(at), "s") {
	case "day":
		if !counted {
			return dated{}, false
		}
		far = r.day(n)
	case "week":
		far = r.day(7 * n)
	case "month":
		far = r.today.AddDate(0, n, 0)
	case "year":
		far = r.today.AddDate(n, 0, 0)
	default:
		return dated{}, false
	}
	if sign > 0 {
		return dated{from: i, to: at + 1, start: r.today, end: far.AddDate(0, 0, 1), relative: true}, true
	}
	return dated{from: i, to: at + 1, start: far, end: r.day(1), relative: true}, true
}

// askedAgo reads "two weeks ago" as that week, since few remember the day, "a week ago today" as the day,
// and "two Fridays ago".
func (r *dateReader) askedAgo(i int) (dated, bool) {
	n, ok := number(r.low(i))
	at := i + 1
	if r.low(i) == "couple" {
		n, ok = 2, true
		if r.low(at) == "of" {
			at++
		}
	}
	if !ok || n > 1000 || r.low(i-1) == "half" || r.low(at+1) != "ago" {
		return dated{}, false
	}
	unit := r.low(at)
	if day, ok := weekdays[strings.TrimSuffix(unit, "s")]; ok && n > 0 {
		return oneDay(i, at+2, r.weekday(day, -1).AddDate(0, 0, -7*(n-1)), true), true
	}
	switch {
	case unit == "fortnight":
		n *= 2
	case unit != "week" && unit != "weeks":
		return r.away(i, at+2, unit, -n)
	}
	if r.low(at+2) == "today" {
		return oneDay(i, at+3, r.day(-7*n), true), true
	}
	return r.unit(i, at+2, "week", -n)
}

// askedWeekend reads "at the weekend": the latest that has begun, unless the question is about the
// future.
func (r *dateReader) askedWeekend(i int) (dated, bool) {
	before := i - 1
	if r.low(before) == "the" {
		before--
	}
	switch r.low(before) {
	case "at", "over", "on", "during", "since":
	default:
		return dated{}, false
	}
	n := 0
	if !r.ahead(i) && inWeek(r.today, int(time.Saturday)).After(r.today) {
		n = -1
	}
	if r.low(i) != "weekend" {
		return dated{}, false
	}
	start := inWeek(r.day(7*n), int(time.Saturday))
	return dated{from: i, to: i + 1, start: start, end: start.AddDate(0, 0, 2), relative: true}, true
}
