package comprehend

import (
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Period is a span of time: Start is inside, End is not.
type Period struct{ Start, End time.Time }

// Within returns the part of the period that is within another one; it ends before it begins if there is none.
func (p Period) Within(other Period) Period {
	if p.Start.Before(other.Start) {
		p.Start = other.Start
	}
	if other.End.Before(p.End) {
		p.End = other.End
	}
	return p
}

// Named is a period with the bytes of the question that name it: [From, To).
type Named struct {
	Period

	From, To int
}

// Periods reads the date expressions of a question that is asked at an instant, in order, in any
// case. Days are those of the location of asked. What the question leaves open, as the year of a month
// or the week of a weekday, is the latest that has begun, unless the question is about the future. The
// ends of a range are one period, "since" a day lasts until the day of asked ends, and "before" a day
// begins with the year 1. It reads at most maxSentence bytes.
func Periods(question string, asked time.Time) []Period {
	var periods []Period
	for _, n := range NamedPeriods(question, asked) {
		periods = append(periods, n.Period)
	}
	return periods
}

// NamedPeriods returns the periods of a question with the bytes that name them, in their order. Besides English it
// reads the words of calendars, and those of scripts without spaces. A text is read for English ones alone: what is
// derived from it does not depend on them.
func NamedPeriods(question string, asked time.Time) []Named {
	question = mask(question[:min(len(question), maxSentence)])
	r := dateReader{
		tokens: tokenize(question, nil), today: midnight(asked), asks: true,
		shouted: !strings.ContainsFunc(question, unicode.IsLower),
	}
	for i := range r.tokens {
		r.tokens[i].low = norm.NFC.String(r.tokens[i].low) // as the tables have their letters
	}
	r.tense = tenseOf(r.tokens)
	// "What did we plan to do in May?" asks for the past.
	r.tense.future = (r.tense.future || asksPlans(r.tokens) || asksAhead(r.tokens)) && !r.tense.past
	r.tense.past = !r.tense.future
	var found []Named
	for i := 0; i < len(r.tokens); {
		d, of := r.askedIn(i)
		if d.to == 0 {
			i++
			continue
		}
		i = d.to
		if whole, ok := r.rangedIn(of, d); ok && len(found) > 0 {
			d, found = whole, found[:len(found)-1]
		}
		r.before = d
		p, from := r.bounded(d)
		if of != nil {
			p, from = of.bounded(&r, d)
		}
		found = append(found, Named{p, r.tokens[from].at, r.tokens[d.to-1].end()})
	}
	return withEastern(found, question, &r)
}

// askedIn reads the date expression that begins with token i, the longest of those of all languages; to is 0 if there
// is none. The calendar is nil for English.
func (r *dateReader) askedIn(i int) (best dated, of *calendar) {
	if d, ok := r.askedAt(i); ok && d.inRange() {
		best = d
	}
	for c := range calendars {
		if d, ok := calendars[c].at(r, i); ok && d.inRange() && d.to > best.to {
			best, of = d, &calendars[c]
		}
	}
	return best, of
}

// rangedIn is ranged in the language of the second expression.
func (r *dateReader) rangedIn(of *calendar, d dated) (dated, bool) {
	if of == nil {
		return r.ranged(r.before, d)
	}
	return of.ranged(r, d)
}

// asksPlans reports whether a question asks for what somebody does later: "what are we doing on Friday?".
func asksPlans(tokens []token) bool {
	for i := 0; i+2 < len(tokens); i++ {
		if low := tokens[i].low; (low == "are" || low == "is" || low == "am") && pronouns[tokens[i+1].low] {
			if _, ok := is(tokens[i+2].low, gerund); ok {
				return true
			}
		}
	}
	return false
}

// askedAt reads the date expression of a question that begins with token i.
func (r *dateReader) askedAt(i int) (dated, bool) {
	for _, read := range []func(int) (dated, bool){
		r.written, r.dashed, r.numericMonth, r.dayMonth, r.monthDays, r.monthDay, r.ordinalMonth, r.weekdayDate,
		r.monthYear, r.quarter, r.askedQuarter, r.weekdayOfWeek, r.weekOf, r.nearby, r.rolling, r.lastNext,
		r.askedAgo, r.ago, r.within, r.askedWeekday, r.askedDay, r.askedMonth, r.askedYear, r.askedWeekend,
	} {
		if d, ok := read(i); ok {
			return d, true
		}
	}
	return dated{}, false
}

// ranged returns the range from the first to the second of two expressions: "from Monday to
// Wednesday", "between 3 May and 5 June".
func (r *dateReader) ranged(first, d dated) (dated, bool) {
	if !r.joins(first, d.from) {
		return dated{}, false
	}
	switch r.low(first.to) {
	case "or":
		return dated{}, false
	case "and":
		if r.low(first.from-1) != "between" && (r.low(first.from-1) != "the" || r.low(first.from-2) != "between") {
			return dated{}, false
		}
	}
	d = r.following(first, d)
	if _, weekday := weekdays[r.low(first.from)]; weekday && d.start.Before(first.start) {
		first.start = first.start.AddDate(0, 0, -7)
	}
	d.from, d.start = first.from, first.start
	return d, d.inRange()
}

// joins reports whether only a word as "to" or "and" is between an expression and token i.
func (r *dateReader) joins(first dated, i int) bool {
	if r.low(i-1) == "the" {
		i--
	}
	return first.to > 0 && first.to == i-1 && joining[r.low(i-1)]
}

// bounded returns the period of an expression with the word before it, and its first token: "since Monday", "the day
// after 12 May".
func (r *dateReader) bounded(d dated) (p Period, from int) {
	at := d.from - 1
	if r.low(at) == "the" {
		at--
	}
	tomorrow := r.day(1)
	p = Period{d.start, d.end}
	switch low := r.low(at); {
	case low == "since" || low == "from" && (r.low(d.to) == "on" || strings.HasPrefix(r.low(d.to), "onward")):
		if d.start.Before(tomorrow) {
			p.End = tomorrow
		}
	case low == "before" || low == "after":
		if near, from, ok := r.unitAway(at, d); ok {
			return near, from
		}
		switch {
		case low == "after" && d.end.Before(tomorrow):
			p = Period{d.end, tomorrow}
		case low == "before" && r.tense.future && r.today.Before(d.start):
			p = Period{r.today, d.start}
		case low == "before" && d.start.Year() > 1:
			p = Period{r.date(1, 1, 1), d.start}
		}
	}
	return p, d.from
}

// unitAway reads the unit before the word "before" or "after" at token i: "the week before 12 May", "two
// days after last Friday".
func (r *dateReader) unitAway(i int, d dated) (p Period, from int, ok bool) {
	unit := strings.TrimSuffix(r.low(i-1), "s")
	length := map[string]int{"day": 1, "week": 7}[unit]
	if length == 0 {
		return Period{}, 0, false
	}
	from = i - 2
	n, ok := number(r.low(from))
	if !ok {
		from, n = i-1, 1
	}
	n = min(n, 1000)
	start := d.end.AddDate(0, 0, length*(n-1))
	if r.low(i) == "before" {
		start = d.start.AddDate(0, 0, -length*n)
	}
	p = Period{start, start.AddDate(0, 0, length)}
	return p, from, dated{start: p.Start, end: p.End}.inRange()
}

// Words that decide what a date expression of a question is.
var (
	joining = set(`to until till through thru and or - – —`)
	// verbMonths are names of months that are also verbs, verbWeekdays short forms that are other words.
	verbMonths   = set(`may march mar`)
	verbWeekdays = set(`sun sat mon wed`)
	// plainMonths are names of months that are nothing else.
	plainMonths = set(`january february july september october november december`)
	// beforeMonths come before a month; before a short form only those of beforeShort do.
	beforeMonths = set(`in on of by for from since until till during before after around through throughout early late mid last next this`)
	beforeShort  = set(`in since until till during early late mid last next this`)
	beforeYears  = set(`in during since until till by before after throughout early late mid year between spring summer autumn fall winter`)
	beforeDays   = set(`on by until till since before after from`)
	// subjectsOfVerbs come before "may" and "march" as verbs.
	subjectsOfVerbs = set(`i we you he she it they who that which what how when where there to do does did will can could should must not`)
	// afterDates come after a date, besides pronouns, articles and auxiliaries.
	afterDates = set(`and or but when where who`)
	afterModal = set(`be have not never also only still`)
	// dayNames come before a weekday in the name of one day of the year.
	dayNames = set(`black good cyber easter ash palm bloody super holy maundy whit shrove giving fat man ruby`)
	// notLatest come before a weekday or month that is not the latest one.
	notLatest = set(`every each any most some many a an first second third fourth fifth last next past previous coming upcoming`)
)

// closes reports whether a date may end before token i: the next word cannot be a noun that it
// describes.
func (r *dateReader) closes(i int) bool {
	low := r.low(i)
	return low == "" || !r.tokens[i].word || prepositions[low] || r.closesShort(i)
}

// closesShort is closes without prepositions: "he last sat at the door".
func (r *dateReader) closesShort(i int) bool {
	low := r.low(i)
	return low == "" || !r.tokens[i].word || pronouns[low] || determiners[low] || partsOfDay[low] || modals[low] ||
		doForms[low] || beForms[low] || haveForms[low] || afterDates[low]
}

// isVerbOrNoun reports whether a short form of a weekday at token i is another word: "she sat down", "on
// sun loungers".
func (r *dateReader) isVerbOrNoun(i int) bool {
	if !verbWeekdays[r.low(i)] {
		return false
	}
	switch r.low(i - 1) {
	case "on", "since", "until", "till", "before", "after":
		return !r.closes(i + 1)
	case "by", "from":
		return r.low(i) == "sun" || !r.closes(i+1)
	case "last", "next", "this":
		return !r.closesShort(i + 1)
	}
	return !r.joins(r.before, i)
}

// monthName reads the name of a month in a question, in any case. "may" and "march" are none where
// they are verbs.
func (r *dateReader) monthName(i int) (time.Month, bool) {
	low := strings.TrimPrefix(r.low(i), "mid-")
	m, ok := months[low]
	if !ok {
		return 0, false
	}
	before, after := r.low(i-1), r.low(i+1)
	if verbMonths[low] {
		_, verb := is(after, base)
		verb = verb && (before == "this" || (before == "last" || before == "next") && r.low(i-2) == "the")
		if verb || subjectsOfVerbs[before] && !r.joins(r.before, i) || low == "may" && afterModal[after] {
			return 0, false
		}
	}
	return time.Month(m), true
}

// namesMonth reports whether the name of a month at token i is one without a day or a year.
func (r *dateReader) namesMonth(i int) bool {
	low, before := r.low(i), r.low(i-1)
	capital := r.tokens[i].capital() && !r.shouted
	switch {
	case strings.HasPrefix(low, "mid-"), r.joins(r.before, i):
		return true
	case len(low) < 4 && low != "may":
		return beforeShort[before]
	case beforeMonths[before]:
		return true
	case before == "the":
		return plainMonths[low] || low == "april" || low == "june" || capital
	}
	return plainMonths[low] && !notLatest[before]
}

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
