package comprehend

import "time"

// before reads the word for last, this or next that begins with token i and comes before a noun; to is 0 for none.
func (c *calendar) before(r *dateReader, i int) (sign, to int) {
	for sign, words := range []map[string]bool{c.last, c.this, c.next} {
		if _, to := phrase(r, i, words); to > 0 {
			return sign - 1, to
		}
	}
	if c.after[r.low(i)] && c.the[r.low(i-1)] { // "el pasado lunes"
		return -1, i + 1
	}
	return 0, 0
}

// afterNoun reads the word for last or next that begins with token i and comes after a noun; to is 0 for none.
func (c *calendar) afterNoun(r *dateReader, i int) (sign, to int) {
	for _, words := range []struct {
		of   map[string]bool
		sign int
	}{{c.last, -1}, {c.after, -1}, {c.next, 1}, {c.nextAfter, 1}} {
		if _, to := phrase(r, i, words.of); to > 0 {
			return words.sign, to
		}
	}
	return 0, 0
}

// weekday reads "letzten Freitag", "el lunes pasado", "am Montag", "lundi".
func (c *calendar) weekday(r *dateReader, i int) (dated, bool) {
	sign, at := c.before(r, i)
	marked := at > 0
	if !marked {
		at = i
	}
	day, ok := c.weekdays[r.plainWord(at)]
	if !ok {
		return dated{}, false
	}
	to := c.afterPart(r, at+1)
	if !marked {
		if after, end := c.afterNoun(r, to); end > 0 {
			sign, to, marked = after, end, true
		}
	}
	switch {
	case marked && sign == 0 && !r.tense.future:
		return oneDay(i, to, inWeek(r.today, day), true), true
	case marked:
		return oneDay(i, to, r.weekday(day, sign), true), true
	case c.notBefore[r.low(to)], c.notAfter[r.low(i-1)], !has(r, i, c.onDay) && (!c.alone || r.inName(i)):
		return dated{}, false
	}
	of := r.weekday(day, 0)
	if !r.tense.future && of.After(r.today) {
		of = of.AddDate(0, 0, -7)
	}
	return oneDay(i, to, of, true), true
}

// unitOf reads "letzte Woche", "la semaine dernière", "el mes que viene".
func (c *calendar) unitOf(r *dateReader, i int) (dated, bool) {
	if sign, at := c.before(r, i); at > 0 {
		name, to := phrase(r, at, c.units)
		if to == 0 || name == "day" {
			return dated{}, false
		}
		return r.unit(i, to, name, sign)
	}
	name, at := phrase(r, i, c.units)
	if at == 0 || name == "day" {
		return dated{}, false
	}
	sign, to := c.afterNoun(r, at)
	if to == 0 {
		return dated{}, false
	}
	return r.unit(i, to, name, sign)
}

// count reads a number in digits or in words.
func (c *calendar) count(r *dateReader, i int) (n int, ok bool) {
	if n, ok = c.numbers[r.plainWord(i)]; ok {
		return n, true
	}
	low := r.low(i)
	if low == "" || low[0] < '0' || low[0] > '9' {
		return 0, false
	}
	return number(low)
}

// rolling reads "die letzten 3 Tage", "les 3 derniers jours": a span that ends today.
func (c *calendar) rolling(r *dateReader, i int) (dated, bool) {
	at := i
	sign, to := c.before(r, i)
	n, ok := 0, false
	if to > 0 {
		n, ok = c.count(r, to)
		at = to + 1
	} else if n, ok = c.count(r, i); ok {
		sign, at = c.before(r, i+1)
	}
	if !ok || at == 0 || sign >= 0 || n < 1 || n > 1000 {
		return dated{}, false
	}
	name, to := phrase(r, at, c.units)
	var far time.Time
	switch name {
	case "day":
		far = r.day(-n)
	case "week":
		far = r.day(-7 * n)
	case "month":
		far = r.today.AddDate(0, -n, 0)
	case "year":
		far = r.today.AddDate(-n, 0, 0)
	default:
		return dated{}, false
	}
	return dated{from: i, to: to, start: far, end: r.day(1), relative: true}, true
}

// ago reads "vor zwei Tagen", "il y a 3 jours", "due giorni fa". A week is that week, as in English.
func (c *calendar) ago(r *dateReader, i int) (dated, bool) {
	_, at := phrase(r, i, c.agoBefore)
	begun := at > 0
	if !begun {
		at = i
	}
	n, ok := c.count(r, at)
	if at++; !ok { // "неделю назад"
		n, at = 1, at-1
	}
	name, to := phrase(r, at, c.units)
	if to == 0 || begun && !ok {
		return dated{}, false
	}
	if c.agoAfter[r.low(to)] {
		to++
	} else if !begun {
		return dated{}, false
	}
	switch name {
	case "day":
		return oneDay(i, to, r.day(-min(n, 1000)), true), true
	case "month":
		first := r.date(r.today.Year(), r.today.Month(), 1).AddDate(0, -min(n, 1000), 0)
		return r.monthOf(i, to, first.Year(), first.Month(), true), true
	}
	return r.unit(i, to, name, -min(n, 1000))
}

// yearAlone reads "en 2024", "im Jahr 2024", "в 2024 году".
func (c *calendar) yearAlone(r *dateReader, i int) (dated, bool) {
	year, ok := yearOf(r.low(i))
	if !ok || year < 1900 || year > 2199 || !has(r, i, c.inYear) {
		return dated{}, false
	}
	to := i + 1
	if c.units[r.low(to)] == "year" {
		to++
	} else if next := r.low(to); next != "" && c.units[next] != "" {
		return dated{}, false
	}
	start := r.date(year, time.January, 1)
	return dated{from: i, to: to, start: start, end: start.AddDate(1, 0, 0)}, true
}

// ranged returns the range from the expression before to another one: "vom 3. Mai bis zum 5. Juni".
func (c *calendar) ranged(r *dateReader, d dated) (dated, bool) {
	first := r.before
	at := d.from - 1
	if low := r.low(at); articles[low] || low == "zum" || low == "la" {
		at--
	}
	if first.to == 0 || first.to != at || !c.joins[r.low(at)] {
		return dated{}, false
	}
	switch r.low(at) { // "and" joins the ends of a range only after "between"
	case "und", "et", "y", "e", "en", "och", "и":
		begins := first.from - 1
		if articles[r.low(begins)] {
			begins--
		}
		if !betweens[r.low(begins)] {
			return dated{}, false
		}
	}
	if d.start.Before(first.start) {
		first.start = first.start.AddDate(0, 0, -7)
	}
	d.from, d.start = first.from, first.start
	return d, d.inRange()
}

// betweens come before a range.
var betweens = set(`zwischen entre tra fra tussen mellan между`)

// bounded returns the period of an expression with the word before it, and its first token: "seit Montag".
func (c *calendar) bounded(r *dateReader, d dated) (p Period, from int) {
	p = Period{d.start, d.end}
	at := d.from
	if low := r.low(at - 1); c.the[low] || articles[low] {
		at--
	}
	if tomorrow := r.day(1); has(r, at, c.since) && d.start.Before(tomorrow) {
		p.End = tomorrow
	}
	return p, d.from
}
