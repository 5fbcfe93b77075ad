package comprehend

import (
	"strconv"
	"strings"
	"time"
)

// partsOfDay may follow a day without changing it.
var partsOfDay = set(`morning afternoon evening night noon`)

// nearby reads today, tomorrow, yesterday, the days before and after these, last night and this
// morning.
func (r *dateReader) nearby(i int) (dated, bool) {
	low, next := r.low(i), r.low(i+1)
	offset, to := 0, i+1
	switch {
	case low == "today" || low == "tonight":
	case low == "tomorrow" || low == "tmrw":
		offset = 1
	case low == "yesterday":
		offset = -1
	case low == "day" && next == "after" && r.low(i+2) == "tomorrow":
		offset, to = 2, i+3
	case low == "day" && next == "before" && r.low(i+2) == "yesterday":
		offset, to = -2, i+3
	case low == "last" && next == "night":
		offset, to = -1, i+2
	case low == "this" && (next == "morning" || next == "afternoon" || next == "evening"):
		to = i + 2
	default:
		return dated{}, false
	}
	if low != "day" && partsOfDay[r.low(to)] && to == i+1 {
		to++
	}
	return oneDay(i, to, r.day(offset), true), true
}

// direction reads a word before a unit of time: -1 for last, 0 for this, 1 for next.
func (r *dateReader) direction(i int) (sign, to int, ok bool) {
	switch r.low(i) {
	case "last", "past", "previous":
		return -1, i + 1, true
	case "next", "coming", "upcoming":
		return 1, i + 1, true
	case "this":
		switch r.low(i + 1) {
		case "past", "last":
			return -1, i + 2, true
		case "coming", "next":
			return 1, i + 2, true
		}
		return 0, i + 1, true
	}
	return 0, 0, false
}

// lastNext reads "last Friday", "next month", "this weekend", "last March", "the week before last".
// It does not read "the last week" and the like, which count from another day than today.
func (r *dateReader) lastNext(i int) (dated, bool) {
	if before, after := r.low(i+1) == "before" && r.low(i+2) == "last", r.low(i+1) == "after" &&
		r.low(i+2) == "next"; before || after {
		sign := 2
		if before {
			sign = -2
		}
		return r.unit(i, i+3, r.low(i), sign)
	}
	sign, at, ok := r.direction(i)
	if !ok || at >= len(r.tokens) || r.low(at+1) == "of" || repeats[r.low(i-1)] {
		return dated{}, false
	}
	the := r.low(i-1) == "the" || r.low(i-1) == "these"
	if day, ok := r.weekdayName(at); ok && (r.asks || !(the && sign != 1)) {
		if plural[r.low(at+1)] || r.asks && r.isVerbOrNoun(at) {
			return dated{}, false
		}
		to := at + 1
		if partsOfDay[r.low(to)] {
			to++
		}
		if r.asks && sign == 0 && !r.tense.future {
			return oneDay(i, to, inWeek(r.today, day), true), true
		}
		return oneDay(i, to, r.weekday(day, sign), true), true
	}
	if the {
		return dated{}, false
	}
	if month, ok := r.month(at); ok {
		return r.namedMonth(i, at+1, month, sign)
	}
	return r.unit(i, at+1, r.low(at), sign)
}

// repeats are words before a date that make it recurring; plural are words after a weekday that do.
var (
	repeats = set(`every each most some these those many`)
	plural  = set(`nights mornings evenings afternoons`)
)

// unit returns the week, weekend, month, quarter or year n after the current one.
func (r *dateReader) unit(from, to int, name string, n int) (dated, bool) {
	d := dated{from: from, to: to, relative: true}
	first := r.date(r.today.Year(), r.today.Month(), 1)
	switch name {
	case "week":
		d.start = monday(r.today).AddDate(0, 0, 7*n)
		d.end = d.start.AddDate(0, 0, 7)
	case "weekend":
		// Early in the week and in the past tense, "this weekend" is the past one.
		if n == 0 && r.tense.past && !r.tense.future && r.today.Weekday() >= time.Monday &&
			r.today.Weekday() <= time.Wednesday {
			n = -1
		}
		d.start = monday(r.today).AddDate(0, 0, 7*n+5)
		d.end = d.start.AddDate(0, 0, 2)
	case "month":
		d.start = first.AddDate(0, n, 0)
		d.end = d.start.AddDate(0, 1, 0)
	case "quarter":
		d.start = first.AddDate(0, -int(first.Month()-1)%3+3*n, 0)
		d.end = d.start.AddDate(0, 3, 0)
	case "year":
		d.start = r.date(r.today.Year()+n, 1, 1)
		d.end = d.start.AddDate(1, 0, 0)
	default:
		return dated{}, false
	}
	return d, true
}

// weekday returns the last such day before today, the next one after it, or for "this" the first
// from today on.
func (r *dateReader) weekday(day, sign int) time.Time {
	ahead := (day - int(r.today.Weekday()) + 7) % 7
	switch {
	case sign < 0:
		ahead -= 7
	case sign > 0 && ahead == 0:
		ahead = 7
	}
	return r.day(ahead)
}

// namedMonth returns the last such month before this one, the next one after it, or for "this" the
// one of this year.
func (r *dateReader) namedMonth(from, to int, month time.Month, sign int) (dated, bool) {
	year := r.today.Year()
	switch {
	case sign < 0 && month >= r.today.Month():
		year--
	case sign > 0 && month <= r.today.Month():
		year++
	}
	return r.monthOf(from, to, year, month, true), true
}

// ago reads "two days ago", "a week from now", "3 months back".
func (r *dateReader) ago(i int) (dated, bool) {
	n, ok := number(r.low(i))
	if !ok || r.low(i-1) == "half" || r.low(i-1) == "." {
		return dated{}, false
	}
	sign, to := 0, i+3
	switch after, then := r.low(i+2), r.low(i+3); {
	case after == "ago" || after == "back" && r.tense.past:
		sign = -1
	case after == "from" && (then == "now" || then == "today"):
		sign, to = 1, i+4
	case after == "before" && then == "yesterday", after == "after" && then == "tomorrow":
		return dated{}, false
	}
	if sign == 0 {
		return dated{}, false
	}
	return r.away(i, to, r.low(i+1), sign*n)
}

// within reads "in two weeks", unless the sentence is in the past ("I lost it in two weeks").
func (r *dateReader) within(i int) (dated, bool) {
	n, ok := number(r.low(i + 1))
	if r.low(i) != "in" || !ok || r.tense.past || r.low(i+3) == "'s" || r.low(i+3) == "of" {
		return dated{}, false
	}
	to := i + 3
	if r.low(to) == "time" {
		to++
	}
	return r.away(i, to, r.low(i+2), n)
}

// away returns the day, month or year n units from today: weeks are counted in days, months and
// years as a whole.
func (r *dateReader) away(from, to int, unit string, n int) (dated, bool) {
	if n < -1000 || n > 1000 {
		return dated{}, false
	}
	switch unit {
	case "day", "days":
		return oneDay(from, to, r.day(n), true), true
	case "week", "weeks":
		return oneDay(from, to, r.day(7*n), true), true
	case "month", "months":
		first := r.date(r.today.Year(), r.today.Month(), 1).AddDate(0, n, 0)
		return r.monthOf(from, to, first.Year(), first.Month(), true), true
	case "year", "years":
		return r.unit(from, to, "year", n)
	}
	return dated{}, false
}

// onWeekday reads "on Friday", "by Friday evening", in the direction of the tense.
func (r *dateReader) onWeekday(i int) (dated, bool) {
	day, ok := weekdays[r.low(i)]
	if !ok || len(r.low(i)) < 4 || !r.tokens[i].capital() || plural[r.low(i+1)] {
		return dated{}, false
	}
	moved := r.putOff(i) && r.low(i-1) != "from"
	switch r.low(i - 1) {
	case "on", "by", "until", "till", "before", "since", "for", "this":
	default:
		if !moved {
			return dated{}, false
		}
	}
	sign := 0
	switch {
	case moved, r.aimed(i), r.isPresent(i):
		sign = 1 // a new date after a delay lies in the future
	case r.recalled(i):
		sign = -1
	case r.tense.past && r.tense.future && (r.low(i-1) == "until" || r.low(i-1) == "till" || r.low(i-1) == "by"):
		sign = 1 // "it started late and will take until Friday"
	case r.tense.past && r.tense.future:
		return dated{}, false
	case r.tense.past, r.low(i-1) == "since":
		sign = -1
	default:
		sign = 1
	}
	to := i + 1
	if partsOfDay[r.low(to)] {
		to++
	}
	return oneDay(i, to, r.weekday(day, sign), true), true
}

// putOff reports whether the date at token i is the new date of something that was moved: it lies
// in the future although the verb is in the past.
func (r *dateReader) putOff(i int) bool {
	k := i - 1
	if r.low(k) == "the" {
		k--
	}
	switch r.low(k) {
	case "to", "until", "till", "for", "from":
	default:
		return false
	}
	for k--; k >= 0; k-- {
		if lemma, ok := is(r.low(k), past|participle|base); ok && rescheduled[lemma] {
			return true
		}
	}
	return false
}

// onDay reads "17th" in "on the 17th", in the direction of the tense.
func (r *dateReader) onDay(i int) (dated, bool) {
	day, ok := dayOfMonth(r.low(i))
	before := r.low(i - 2)
	if !ok || r.tokens[i].text == strconv.Itoa(day) || r.low(i-1) != "the" || before != "on" && before != "by" &&
		before != "until" || r.tense.past == r.tense.future {
		return dated{}, false
	}
	if next := r.low(i + 1); next != "" && r.tokens[i+1].word && !conjunctions[next] && !prepositions[next] {
		return dated{}, false // "on the 17th floor"
	}
	if r.low(i+1) == "of" {
		return dated{}, false
	}
	step := 1
	if r.tense.past {
		step = -1
	}
	for n := range 62 {
		if t := r.day(step * n); t.Day() == day {
			return oneDay(i, i+1, t, true), true
		}
	}
	return dated{}, false
}

// inMonth reads "in March", in the direction of the tense; without a tense the year stays open.
func (r *dateReader) inMonth(i int) (dated, bool) {
	month, ok := r.month(i)
	if !ok || len(r.low(i)) < 4 && month != time.May {
		return dated{}, false
	}
	switch before := r.low(i - 1); before {
	case "in", "until", "till", "by", "since", "early", "late", "mid":
	case "of":
		if part := r.low(i - 2); part != "end" && part != "beginning" && part != "start" && part != "middle" {
			return dated{}, false
		}
		if r.tense == (tense{}) { // "our lease ends at the end of November"
			return r.namedMonth(i, i+1, month, 1)
		}
	default:
		return dated{}, false
	}
	switch {
	case r.putOff(i), r.aimed(i):
		return r.namedMonth(i, i+1, month, 1)
	case r.tense.past == r.tense.future:
		return dated{}, false
	case r.tense.past && month == r.today.Month(), r.tense.future && month == r.today.Month():
		return r.namedMonth(i, i+1, month, 0)
	case r.tense.past:
		return r.namedMonth(i, i+1, month, -1)
	}
	return r.namedMonth(i, i+1, month, 1)
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
