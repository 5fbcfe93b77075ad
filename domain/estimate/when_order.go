package estimate

import "strings"

// dateOrder collects what the dates of a file show of the order of day and month.
type dateOrder struct {
	// dayFirst and monthFirst count dates that have only one reading, halves those with am or pm.
	dayFirst, monthFirst, halves int
	// back counts how often a date is before the one that precedes it, read with the day first and the month first.
	back [2]int
	last [2]int
}

// add looks at the beginning of a text for a date of two numbers and a year.
func (o *dateOrder) add(text string) {
	a, rest, ok := leadingNumber(text)
	if !ok || rest == "" || !strings.Contains("/-", rest[:1]) {
		return
	}
	sep := rest[:1]
	b, rest, ok := leadingNumber(rest[1:])
	if !ok || !strings.HasPrefix(rest, sep) {
		return
	}
	year, rest, ok := leadingNumber(rest[1:])
	if !ok {
		return
	}
	switch {
	case a > 31 || b > 31 || a == 0 || b == 0:
		return
	case a > 12 && b > 12:
		return
	case a > 12:
		o.dayFirst++
	case b > 12:
		o.monthFirst++
	}
	clock := strings.ToLower(rest[:min(len(rest), 24)])
	if strings.Contains(clock, "am") || strings.Contains(clock, "pm") {
		o.halves++
	}
	for i, day := range [2]int{year*10_000 + b*100 + a, year*10_000 + a*100 + b} {
		if day < o.last[i] {
			o.back[i]++
		}
		o.last[i] = day
	}
}

// leadingNumber reads up to four digits.
func leadingNumber(text string) (n int, rest string, ok bool) {
	i := 0
	for i < len(text) && i < 5 && text[i] >= '0' && text[i] <= '9' {
		n = n*10 + int(text[i]-'0')
		i++
	}
	return n, text[i:], i > 0 && i < 5
}

// isMonthFirst decides: by dates that have one reading, else by the order of the file, in which dates seldom go back,
// else by a clock with am or pm, as in the United States.
func (o *dateOrder) isMonthFirst() bool {
	switch {
	case o.dayFirst != o.monthFirst:
		return o.monthFirst > o.dayFirst
	case o.back[0] != o.back[1] && (o.back[0] == 0 || o.back[1] == 0):
		return o.back[1] == 0
	}
	return o.halves > 0
}

// learnOrder reads the order of day and month from all values of a file that begin with a date: at the beginning of a
// line, of a cell, or of a text in quotes.
func (c *cut) learnOrder() bool {
	var o dateOrder
	text := c.text
	for i := 0; i < len(text); i++ {
		if i%checkBytes == 0 && c.over(min(checkBytes, len(text)-i)) {
			break
		}
		if text[i] < '0' || text[i] > '9' || i > 0 && !strings.ContainsRune("\n\t,;|\"'[", rune(text[i-1])) {
			continue
		}
		o.add(text[i:min(len(text), i+40)])
	}
	return o.isMonthFirst()
}
