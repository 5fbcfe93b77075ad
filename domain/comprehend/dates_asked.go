package comprehend

import (
	"strconv"
	"strings"
	"time"
)

// dashed reads "12-May-2025" and "12-May".
func (r *dateReader) dashed(i int) (dated, bool) {
	parts := strings.Split(r.low(i), "-")
	if len(parts) != 2 && len(parts) != 3 {
		return dated{}, false
	}
	day, ok := dayOfMonth(parts[0])
	month, named := months[parts[1]]
	if !ok || !named {
		return dated{}, false
	}
	if len(parts) == 2 {
		t, ok := r.nearest(i, time.Month(month), day)
		return oneDay(i, i+1, t, true), ok
	}
	year, ok := yearOf(parts[2])
	if !ok {
		return dated{}, false
	}
	t, ok := r.calendar(year, time.Month(month), day)
	return oneDay(i, i+1, t, false), ok
}

// numericMonth reads "2025-05" and "05/2025" after a word as "in".
func (r *dateReader) numericMonth(i int) (dated, bool) {
	if low := r.low(i); len(low) < 6 || len(low) > 7 || !beforeMonths[r.low(i-1)] && !r.joins(r.before, i) {
		return dated{}, false
	}
	before, after, ok := strings.Cut(r.low(i), "-")
	if !ok {
		after, before, ok = strings.Cut(r.low(i), "/")
	}
	year, ok1 := yearOf(before)
	month, err := strconv.Atoi(after)
	if !ok || !ok1 || err != nil || month < 1 || month > 12 {
		return dated{}, false
	}
	return r.monthOf(i, i+1, year, time.Month(month), false), true
}

// monthDays reads "May 3 to 5", "May 3 and 5" after "between".
func (r *dateReader) monthDays(i int) (dated, bool) {
	month, ok := r.monthAt(i)
	if !ok {
		return dated{}, false
	}
	at := r.afterMonth(i)
	first, ok := dayOfMonth(r.low(at))
	last, ok2 := dayOfMonth(r.low(at + 2))
	if !ok || !ok2 || last <= first {
		return dated{}, false
	}
	switch r.low(at + 1) {
	case "to", "-", "–", "—", "until", "till", "through":
	case "and":
		if r.low(i-1) != "between" {
			return dated{}, false
		}
	default:
		return dated{}, false
	}
	if _, other := r.monthAt(at + 3); other || r.low(at+3) == "of" { // "May 3 to 5 June"
		return dated{}, false
	}
	return r.daysOfMonth(i, at+3, month, first, last)
}

// ordinals are the days of a month in words.
var ordinals = func() map[string]int {
	days := map[string]int{}
	for n, word := range strings.Fields(`first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth
		thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth`) {
		days[word] = n + 1
		if n < 9 {
			days["twenty-"+word] = n + 21
		}
	}
	days["thirtieth"], days["thirty-first"] = 30, 31
	return days
}()

// ordinalMonth reads "second of May" and "May the fourth". Beside the name of a month that is also
// another word, the ordinal needs "the" or a word as "on".
func (r *dateReader) ordinalMonth(i int) (dated, bool) {
	if day, ok := ordinals[r.low(i)]; ok && r.low(i+1) == "of" {
		if month, ok := r.monthAt(i + 2); ok {
			return r.daysOfMonth(i, r.afterMonth(i+2), month, day, day)
		}
	}
	month, ok := r.monthAt(i)
	if !ok {
		return dated{}, false
	}
	at := i + 1
	if r.low(at) == "the" {
		at++
	} else if (verbMonths[r.low(i)] || r.low(i) == "august") && !beforeMonths[r.low(i-1)] {
		return dated{}, false
	}
	day, ok := ordinals[r.low(at)]
	if !ok || !r.closes(at+1) {
		return dated{}, false
	}
	return r.daysOfMonth(i, at+1, month, day, day)
}

// askedQuarter reads "in Q3", the latest that has begun.
func (r *dateReader) askedQuarter(i int) (dated, bool) {
	low := r.low(i)
	if len(low) != 2 || low[0] != 'q' || low[1] < '1' || low[1] > '4' || !beforeMonths[r.low(i-1)] && !r.joins(r.before, i) {
		return dated{}, false
	}
	start := r.date(r.today.Year(), time.Month(3*int(low[1]-'1')+1), 1)
	switch end := start.AddDate(0, 3, 0); {
	case r.low(i-1) == "last" && r.today.Before(end), start.After(r.today) && !r.tense.future:
		start = start.AddDate(-1, 0, 0)
	case r.low(i-1) == "next" && !r.today.Before(start), !r.today.Before(end) && r.tense.future:
		start = start.AddDate(1, 0, 0)
	}
	return dated{from: i, to: i + 1, start: start, end: start.AddDate(0, 3, 0), relative: true}, true
}

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
	far := r.today
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

// ahead reports whether the day at token i lies in the future: the question does, or the day follows
// "is on", "due by", "planned for".
func (r *dateReader) ahead(i int) bool {
	switch r.low(i - 1) {
	case "since":
		return false
	case "on", "by", "for", "until", "at":
		switch r.low(i - 2) {
		case "is", "are", "'s", "due", "plan", "plans", "planned", "scheduled":
			return true
		}
	}
	return r.tense.future
}

// askedWeekday reads "on Friday" and "Friday": the last one, the day itself included, unless the
// question is about the future.
func (r *dateReader) askedWeekday(i int) (dated, bool) {
	day, ok := r.weekdayName(i)
	before := r.low(i - 1)
	if !ok || plural[r.low(i+1)] || r.low(i+1) == "of" || notLatest[before] || repeats[before] || dayNames[before] ||
		r.isVerbOrNoun(i) || !beforeDays[before] && r.inName(i) {
		return dated{}, false
	}
	if r.low(i+1) == "before" && r.low(i+2) == "last" {
		return oneDay(i, i+3, r.weekday(day, -1).AddDate(0, 0, -7), true), true
	}
	to := i + 1
	if partsOfDay[r.low(to)] {
		to++
	}
	at := r.weekday(day, 0)
	if !r.ahead(i) && at.After(r.today) {
		at = at.AddDate(0, 0, -7)
	}
	return oneDay(i, to, at, true), true
}

// inName reports whether the word at token i is part of a name: "Wednesday Addams".
func (r *dateReader) inName(i int) bool {
	if r.shouted || !r.tokens[i].capital() {
		return false
	}
	return i > 1 && r.tokens[i-1].capital() && r.tokens[i-1].low != "i" || i+1 < len(r.tokens) && r.tokens[i+1].capital() &&
		r.tokens[i+1].low != "i" && !partsOfDay[r.tokens[i+1].low]
}

// askedDay reads "12th" in "on the 12th": the last one, today included, unless the question is about the
// future.
func (r *dateReader) askedDay(i int) (dated, bool) {
	day, ok := dayOfMonth(r.low(i))
	before := i - 1
	if r.low(before) == "the" {
		before--
	}
	if low := r.low(i); !ok || len(low) < 3 || r.low(i+1) == "of" || !r.closes(i+1) || // "3" and "03" are numbers
		!beforeDays[r.low(before)] && !r.joins(r.before, i) {
		return dated{}, false
	}
	step := -1
	if r.ahead(i) {
		step = 1
	}
	for n := range 62 {
		if t := r.day(step * n); t.Day() == day {
			return oneDay(i, i+1, t, true), true
		}
	}
	return dated{}, false
}

// askedMonth reads "in May": the latest that has begun, unless the question is about the future.
func (r *dateReader) askedMonth(i int) (dated, bool) {
	month, ok := r.month(i)
	if _, impossible := dayOfMonth(r.low(i - 1)); !ok || impossible || !r.namesMonth(i) { // "31 June"
		return dated{}, false
	}
	sign := -1
	switch {
	case month == r.today.Month():
		sign = 0
	case r.tense.future:
		sign = 1
	}
	return r.namedMonth(i, i+1, month, sign)
}

// askedYear reads "in 2024".
func (r *dateReader) askedYear(i int) (dated, bool) {
	year, ok := yearOf(r.low(i))
	if !ok || year < 1900 || year > 2199 || !r.closes(i+1) {
		return dated{}, false
	}
	switch before := r.low(i - 1); {
	case beforeYears[before], r.joins(r.before, i):
	case before == "from" && (r.low(i+1) == "to" || r.low(i+1) == "until" || r.low(i+1) == "on" || r.low(i+1) == "onwards"):
	case before == "of":
		switch r.low(i - 2) {
		case "end", "beginning", "start", "middle", "rest", "half", "part", "all", "most", "year":
		default:
			return dated{}, false
		}
	default:
		return dated{}, false
	}
	start := r.date(year, time.January, 1)
	return dated{from: i, to: i + 1, start: start, end: start.AddDate(1, 0, 0)}, true
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
