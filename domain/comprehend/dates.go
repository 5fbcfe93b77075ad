package comprehend

import (
	"strconv"
	"strings"
	"time"

	"github.com/annals-project/annals/domain/instant"
)

// dated is a date expression in a sentence and the span of time that it names.
type dated struct {
	from, to   int // tokens, half open
	start, end time.Time
	relative   bool // depends on the time of the sentence
	clock      bool // includes a time of day
}

// dateReader reads the date expressions of one sentence.
type dateReader struct {
	tokens []token
	tense  tense
	today  time.Time // midnight; its location is that of all days
	// asks is set for a question: names of days and months count in any case.
	asks bool
	// shouted is set for a question without a lower-case letter, in which a capital marks no name.
	shouted bool
	// before is the expression that was found before, of a question.
	before dated
}

// findDates finds the date expressions of a sentence, in order, the longest at each place.
func findDates(s *sentence, occurredAt time.Time) []dated {
	r := dateReader{tokens: s.tokens, tense: s.tense, today: midnight(occurredAt.UTC())}
	found := s.dates
	for i := 0; i < len(r.tokens); {
		d, ok := r.at(i)
		if !ok || !d.inRange() {
			i++
			continue
		}
		if len(found) > 0 {
			d = r.following(found[len(found)-1], d)
		}
		found = append(found, r.withClock(d))
		i = found[len(found)-1].to
	}
	return found
}

// midnight returns the first moment of the day of t in its location.
func midnight(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, t.Location())
}

// inRange reports whether the span is not empty and can be stored.
func (d dated) inRange() bool {
	return d.start.Year() >= 1 && d.end.Year() <= 9999 && d.start.Before(d.end)
}

// following returns a date as the end of a range that an earlier date begins: in "from 1 April to 30
// September" the second follows the first.
func (r *dateReader) following(first, d dated) dated {
	if !d.relative || d.clock || first.to+1 != d.from || !d.start.Before(first.start) {
		return d
	}
	switch r.low(first.to) {
	case "to", "until", "till", "-", "–", "and", "through":
		if next := d.start.AddDate(1, 0, 0); next.Day() == d.start.Day() && months[r.low(d.to-1)]+months[r.low(d.from)] > 0 {
			d.start, d.end = next, d.end.AddDate(1, 0, 0)
		}
	}
	return d
}

// dateStarts are the words, besides numbers, that a date expression can begin with.
var dateStarts = union(months, weekdays, numberWords,
	set(`today tonight tomorrow tmrw yesterday day last past previous next coming upcoming this week weekend month quarter year in q1 q2 q3 q4`))

// union merges the words of tables.
func union(months, weekdays, numbers map[string]int, words map[string]bool) map[string]bool {
	for _, table := range []map[string]int{months, weekdays, numbers} {
		for w := range table {
			words[w] = true
		}
	}
	return words
}

// at reads the date expression that begins with token i.
func (r *dateReader) at(i int) (dated, bool) {
	if t := r.tokens[i]; !t.numeric() && !dateStarts[t.low] {
		return dated{}, false // true for nearly all tokens
	}
	for _, read := range []func(int) (dated, bool){
		r.written, r.dayMonth, r.monthDay, r.weekdayDate, r.monthYear,
		r.quarter, r.nearby, r.lastNext, r.ago, r.within, r.onWeekday, r.onDay, r.inMonth,
	} {
		if d, ok := read(i); ok {
			return d, true
		}
	}
	return dated{}, false
}

// low returns token i in lower case, "" outside of the sentence.
func (r *dateReader) low(i int) string {
	if i < 0 || i >= len(r.tokens) {
		return ""
	}
	return r.tokens[i].low
}

// date returns the first moment of a day.
func (r *dateReader) date(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, r.today.Location())
}

// day returns the day n days after today.
func (r *dateReader) day(n int) time.Time { return r.today.AddDate(0, 0, n) }

// oneDay returns the expression of tokens [from, to) for a day.
func oneDay(from, to int, day time.Time, relative bool) dated {
	return dated{from: from, to: to, start: day, end: day.AddDate(0, 0, 1), relative: relative}
}

func (r *dateReader) monthOf(from, to int, year int, month time.Month, relative bool) dated {
	start := r.date(year, month, 1)
	return dated{from: from, to: to, start: start, end: start.AddDate(0, 1, 0), relative: relative}
}

// monday returns the first day of the week of t, by ISO 8601.
func monday(t time.Time) time.Time { return t.AddDate(0, 0, -(int(t.Weekday())+6)%7) }

// number reads a small number in digits or in words.
func number(low string) (int, bool) {
	if n, ok := numberWords[low]; ok {
		return n, true
	}
	if len(low) == 0 || len(low) > 4 || low[0] < '0' || low[0] > '9' {
		return 0, false
	}
	n, err := strconv.Atoi(low)
	return n, err == nil
}

// dayOfMonth reads "3", "3rd" or "03".
func dayOfMonth(low string) (int, bool) {
	for _, suffix := range []string{"st", "nd", "rd", "th"} {
		if cut, ok := strings.CutSuffix(low, suffix); ok {
			low = cut
			break
		}
	}
	if len(low) == 0 || len(low) > 2 || low[0] < '0' || low[0] > '9' {
		return 0, false
	}
	n, err := strconv.Atoi(low)
	return n, err == nil && n >= 1 && n <= 31
}

// dayRange reads "3-5" or "3–5" as two days of a month.
func dayRange(low string) (first, last int, ok bool) {
	a, b, found := strings.Cut(low, "-")
	if !found {
		first, ok = dayOfMonth(low)
		return first, first, ok
	}
	first, ok1 := dayOfMonth(a)
	last, ok2 := dayOfMonth(b)
	return first, last, ok1 && ok2 && first < last
}

// yearOf reads a year of four digits.
func yearOf(low string) (int, bool) {
	if len(low) != 4 {
		return 0, false
	}
	n, err := strconv.Atoi(low)
	return n, err == nil && n >= 1000 && n <= 2999
}

// month reads the name of a month. In a text it counts only with a capital.
func (r *dateReader) month(i int) (time.Month, bool) {
	if r.asks {
		return r.monthName(i)
	}
	m, ok := months[r.low(i)]
	if !ok || !r.tokens[i].capital() {
		return 0, false
	}
	return time.Month(m), true
}

// weekdayName reads the name of a weekday. In a text it counts only with a capital.
func (r *dateReader) weekdayName(i int) (day int, ok bool) {
	day, ok = weekdays[r.low(i)]
	return day, ok && (r.asks || r.tokens[i].capital())
}

// nearest returns a day of a month, in the year that the tense requires, else in the year that
// brings it closest to today. Its expression begins at token i.
func (r *dateReader) nearest(i int, month time.Month, day int) (time.Time, bool) {
	moved := r.putOff(i)
	reported := r.tense.past && !r.tense.future && !moved && !r.isPresent(i)
	ahead := moved || r.tense.future && !r.tense.past
	var best time.Time
	for year := r.today.Year() - 1; year <= r.today.Year()+1; year++ {
		t := r.date(year, month, day)
		if t.Day() != day || reported && t.After(r.today) || ahead && t.Before(r.today) {
			continue
		}
		if best.IsZero() || t.Sub(r.today).Abs() < best.Sub(r.today).Abs() {
			best = t
		}
	}
	return best, !best.IsZero()
}

// isPresent reports whether the verb right before the date at token i is in the present, as in "Omar
// resigned; his last day is 27 February".
func (r *dateReader) isPresent(i int) bool {
	for i--; beforeDates[r.low(i)] || r.low(i) == "due" || r.low(i) == "planned" || r.low(i) == "now"; i-- {
	}
	return r.low(i) == "is" || r.low(i) == "are"
}

// aimed reports whether the date at token i is a deadline, as in "agreed to fix the boiler by
// Monday".
func (r *dateReader) aimed(i int) bool {
	if low := r.low(i - 1); low != "by" && low != "until" && low != "till" && low != "before" {
		return false
	}
	for k := i - 2; k > 0; k-- {
		if r.low(k-1) == "to" && isBase(r.low(k)) {
			return true
		}
	}
	return false
}

// recalled reports whether the date at token i belongs to something that the sentence refers to:
// "Per our call on Friday, …".
func (r *dateReader) recalled(i int) bool {
	switch r.low(0) {
	case "per", "following":
	case "as":
		if low := r.low(1); low != "discussed" && low != "agreed" && low != "mentioned" && low != "promised" {
			return false
		}
	default:
		return false
	}
	for k := 1; k < i; k++ {
		if r.low(k) == "," {
			return false
		}
	}
	return true
}

// describe returns the span in words: "13 May 2025", "5 May 2025 to 11 May 2025", "June 2025",
// "2024".
func (d dated) describe() string {
	const day = "2 January 2006"
	last := d.end.AddDate(0, 0, -1)
	switch {
	case d.clock:
		return d.start.Format(day + ", 15:04")
	case d.start.AddDate(0, 0, 1).Equal(d.end):
		return d.start.Format(day)
	case d.start.Day() == 1 && d.start.AddDate(0, 1, 0).Equal(d.end):
		return d.start.Format("January 2006")
	case d.start.YearDay() == 1 && d.start.AddDate(1, 0, 0).Equal(d.end):
		return d.start.Format("2006")
	}
	return d.start.Format(day) + " to " + last.Format(day)
}

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

// withClock adds the time of day that follows a single day: "tomorrow at 5 pm", "3 June at 17:00",
// "today at noon". An hour without am or pm ("at 5") is ambiguous and is ignored.
func (r *dateReader) withClock(d dated) dated {
	if d.clock || !d.start.AddDate(0, 0, 1).Equal(d.end) {
		return d
	}
	at := d.to
	if r.low(at) == "," && r.low(at+1) == "at" {
		at++
	}
	if r.low(at) != "at" {
		return d
	}
	minutes, to, ok := r.clock(at + 1)
	if !ok {
		return d
	}
	d.start = d.start.Add(time.Duration(minutes) * time.Minute)
	d.end = d.start.Add(time.Minute)
	d.to, d.clock = to, true
	return d
}

// clock reads a time of day as minutes since midnight.
func (r *dateReader) clock(i int) (minutes, to int, ok bool) {
	low := r.low(i)
	switch low {
	case "noon":
		return 12 * 60, i + 1, true
	case "midnight":
		return 0, 0, false // ambiguous between two days
	}
	half, to := r.low(i+1), i+2
	for _, suffix := range []string{"am", "pm", "a.m", "p.m"} {
		if cut, found := strings.CutSuffix(low, suffix); found {
			low, half, to = cut, suffix, i+1
		}
	}
	h, m, found := strings.Cut(low, ":")
	hour, err := strconv.Atoi(h)
	if err != nil || hour < 0 || len(h) > 2 {
		return 0, 0, false
	}
	minute := 0
	if found {
		if minute, err = strconv.Atoi(m); err != nil || len(m) != 2 || minute > 59 {
			return 0, 0, false
		}
	}
	switch half {
	case "am", "a.m", "pm", "p.m":
		if hour < 1 || hour > 12 {
			return 0, 0, false
		}
		hour %= 12
		if half[0] == 'p' {
			hour += 12
		}
		return hour*60 + minute, to, true
	}
	if !found || hour > 23 {
		return 0, 0, false
	}
	return hour*60 + minute, i + 1, len(h) == 2 || hour > 12
}
