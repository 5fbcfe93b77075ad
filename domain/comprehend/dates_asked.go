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

// ordinalMonth reads "second of May" and "May the fourth". After the name of a month that is also
// another word, the ordinal needs "the", or a word as "on" before both.
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
	if len(low) != 2 || low[0] != 'q' || low[1] < '1' || low[1] > '4' ||
		!beforeMonths[r.low(i-1)] && !r.joins(r.before, i) {
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
	name := func(k int) bool { return r.tokens[k].capital() && r.tokens[k].low != "i" }
	return i > 1 && name(i-1) || i+1 < len(r.tokens) && name(i+1) && !partsOfDay[r.low(i+1)]
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
	case before == "from" && (joining[r.low(i+1)] || r.low(i+1) == "on" || r.low(i+1) == "onwards"):
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
