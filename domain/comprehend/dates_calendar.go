package comprehend

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	lists "github.com/annals-project/annals/domain/lexicon"
)

// calendarTable is the words of time of a language, as calendarTables has them.
type calendarTable struct {
	// days are expressions of a day, each with its distance from today; parts may follow one and change nothing.
	days, parts string
	// months and short are from January on, weekdays from Sunday on. A short form counts only after a day.
	months, short, weekdays string
	// The units of time, and numbers from one on.
	day, week, weekend, month, quarter, year, numbers string
	// last, this and next come before a unit, a weekday or a month, or after it but for this; after and nextAfter come
	// after it alone, and after also between an article, the, and the noun.
	last, this, next, the, after, nextAfter string
	// of is between a day, its month and its year. inMonth, onDay and inYear come before a month, a weekday, a year.
	of, inMonth, onDay, inYear string
	// alone: a weekday needs no word before it, unless notAfter or notBefore is next to it.
	alone               bool
	notAfter, notBefore string
	// agoBefore comes before a span that has passed, agoAfter after it.
	agoBefore, agoAfter string
	// since begins a period up to now, joins is between the ends of one. firstDay is how the first of a month is written.
	since, joins, firstDay string
	// future are auxiliaries of the future.
	future string
	// isFrench: its "hier" is yesterday unless the question has a German or Dutch word.
	isFrench bool
}

// calendar is a calendarTable as it is read.
type calendar struct {
	calendarTable

	// starts are the first words of the expressions that begin with a word.
	starts                                      map[string]bool
	days                                        map[string]int
	parts                                       map[string]bool
	months, short, weekdays, numbers            map[string]int
	units                                       map[string]string
	last, this, next, the, after, nextAfter, of map[string]bool
	inMonth, onDay, inYear, notAfter, notBefore map[string]bool
	agoBefore, agoAfter, since, joins           map[string]bool
}

// articles may come before a day.
var articles = set(`den dem der le el il o a`)

// calendars are those of all languages but English.
var calendars = func() (all []calendar) {
	for _, t := range calendarTables {
		c := calendar{
			calendarTable: t, days: map[string]int{}, parts: phrasesOf(t.parts), months: numbered(t.months, 1),
			short: numbered(t.short, 1), weekdays: numbered(t.weekdays, 0), numbers: numbered(t.numbers, 1),
			units: map[string]string{}, last: phrasesOf(t.last), this: phrasesOf(t.this), next: phrasesOf(t.next),
			the: phrasesOf(t.the), after: phrasesOf(t.after), nextAfter: phrasesOf(t.nextAfter), of: phrasesOf(t.of),
			inMonth: phrasesOf(t.inMonth), onDay: phrasesOf(t.onDay), inYear: phrasesOf(t.inYear),
			notAfter: phrasesOf(t.notAfter), notBefore: phrasesOf(t.notBefore), agoBefore: phrasesOf(t.agoBefore),
			agoAfter: phrasesOf(t.agoAfter), since: phrasesOf(t.since), joins: phrasesOf(t.joins),
		}
		for day := range strings.FieldsSeq(t.days) {
			name, offset, _ := strings.Cut(day, "=")
			n, err := strconv.Atoi(offset)
			if err != nil {
				panic(err) // the table is wrong
			}
			for _, form := range formsOf(name) {
				c.days[form] = n
			}
		}
		for name, list := range map[string]string{
			"day": t.day, "week": t.week, "weekend": t.weekend, "month": t.month, "quarter": t.quarter, "year": t.year,
		} {
			for form := range numbered(list, 0) {
				c.units[form] = name
			}
		}
		c.starts = startsOf(c.last, c.this, c.next, c.after, c.agoBefore)
		maps.Copy(c.starts, startsOf(c.units))
		maps.Copy(c.starts, startsOf(c.days, c.months, c.weekdays, c.numbers))
		all = append(all, c)
	}
	return all
}()

// startsOf returns the first words of the phrases of tables.
func startsOf[V any](tables ...map[string]V) map[string]bool {
	starts := map[string]bool{}
	for _, table := range tables {
		for phrase := range table {
			first, _, _ := strings.Cut(phrase, " ")
			starts[first] = true
		}
	}
	return starts
}

// formsOf returns a word of a table with spaces, and without its marks.
func formsOf(word string) []string {
	word = strings.ReplaceAll(word, "_", " ")
	plain := strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFD.String(word))
	if plain == word || strings.ContainsFunc(word, func(r rune) bool { return unicode.Is(unicode.Cyrillic, r) }) ||
		len(plain) < 3 {
		return []string{word}
	}
	return []string{word, plain}
}

func phrasesOf(list string) map[string]bool {
	phrases := map[string]bool{}
	for word := range strings.FieldsSeq(list) {
		for _, form := range formsOf(word) {
			phrases[form] = true
		}
	}
	return phrases
}

// numbered numbers the words of a list, all forms of a word alike.
func numbered(list string, first int) map[string]int {
	numbers := map[string]int{}
	for n, word := range strings.Fields(list) {
		for form := range strings.SplitSeq(word, "|") {
			for _, f := range formsOf(form) {
				numbers[f] = first + n
			}
		}
	}
	return numbers
}

// asksAhead reports whether a question has an auxiliary of the future in another language than English.
func asksAhead(tokens []token) bool {
	return slices.ContainsFunc(tokens, func(t token) bool { return futures[t.low] })
}

var futures = func() map[string]bool {
	all := map[string]bool{}
	for _, t := range calendarTables {
		maps.Copy(all, phrasesOf(t.future))
	}
	return all
}()

// longestPhrase is the most tokens of a phrase of a table.
const longestPhrase = 4

// plainWord returns token i in lower case, without an article before an apostrophe.
func (r *dateReader) plainWord(i int) string {
	low := r.low(i)
	if before, rest, ok := strings.Cut(low, "'"); ok && len(before) <= 4 && before != "aujourd" && rest != "" {
		return rest
	}
	return low
}

// phrase returns the longest phrase of a table that begins with token i, and where it ends; 0 for none.
func phrase[V any](r *dateReader, i int, table map[string]V) (found V, to int) {
	text := r.plainWord(i)
	if v, ok := table[text]; ok {
		found, to = v, i+1
	}
	if !longPhrases[text] {
		return found, to
	}
	for k := i + 1; k < len(r.tokens) && k < i+longestPhrase; k++ {
		text += " " + r.plainWord(k)
		if v, ok := table[text]; ok {
			found, to = v, k+1
		}
	}
	return found, to
}

// longPhrases are the first words of the phrases of several words, of all tables.
var longPhrases = func() map[string]bool {
	first := map[string]bool{}
	for _, t := range calendarTables {
		for _, list := range []string{t.days, t.parts, t.weekend, t.nextAfter, t.agoBefore} {
			for phrase := range strings.FieldsSeq(strings.ReplaceAll(list, "|", " ")) {
				if word, _, several := strings.Cut(phrase, "_"); several {
					for _, form := range formsOf(word) {
						first[form] = true
					}
				}
			}
		}
	}
	return first
}()

// has reports whether a word of a table is right before token i.
func has(r *dateReader, i int, table map[string]bool) bool { return table[r.low(i-1)] }

// at reads the date expression of the language that begins with token i, the longest.
func (c *calendar) at(r *dateReader, i int) (best dated, ok bool) {
	if t := r.tokens[i]; !t.word || !t.numeric() && !c.starts[r.plainWord(i)] {
		return dated{}, false // true for nearly all tokens
	}
	for _, read := range []func(*dateReader, int) (dated, bool){
		c.nearDay, c.dayOfMonth, c.monthAlone, c.weekday, c.unitOf, c.rolling, c.ago, c.yearAlone,
	} {
		if d, found := read(r, i); found && d.to > best.to {
			best, ok = d, true
		}
	}
	return best, ok
}

// nearDay reads "gestern", "ayer por la tarde".
func (c *calendar) nearDay(r *dateReader, i int) (dated, bool) {
	offset, to := phrase(r, i, c.days)
	if to == 0 || r.inOtherName(i, to) || c.isFrench && r.plainWord(i) == "hier" && to == i+1 && r.speaksGerman(i) {
		return dated{}, false
	}
	return oneDay(i, c.afterPart(r, to), r.day(offset), true), true
}

// inOtherName reports whether the tokens from i up to another are a name: a word with a capital after another word, as
// in "Maison Hier".
func (r *dateReader) inOtherName(i, to int) bool {
	return to == i+1 && i > 0 && r.tokens[i-1].word && r.tokens[i].capital() && !r.shouted
}

// afterPart returns the token after a part of the day.
func (c *calendar) afterPart(r *dateReader, i int) int {
	if _, to := phrase(r, i, c.parts); to > 0 {
		return to
	}
	return i
}

// germanic are the function words of German and Dutch that are none of French or English.
var germanic = func() map[string]bool {
	words := map[string]bool{}
	for _, language := range []string{"de", "nl"} {
		for word := range lists.StopWords(language) {
			words[word] = true
		}
	}
	for _, language := range []string{"fr", "en"} {
		for word := range lists.StopWords(language) {
			delete(words, word)
		}
	}
	return words
}()

// speaksGerman reports whether a word of the question besides token i is of German or Dutch: a function word, a word of
// time, or one with a letter that French has not.
func (r *dateReader) speaksGerman(i int) bool {
	for k, t := range r.tokens {
		if k == i || !t.word {
			continue
		}
		if t.low != "hier" && germanic[t.low] || strings.ContainsAny(t.low, "äöß") || germanWords[t.low] {
			return true
		}
	}
	return false
}

// germanWords are days and words of asking of German and Dutch that are none of another language.
var germanWords = set(`heute gestern vorgestern vandaag gisteren eergisteren morgen
	waar wanneer waarom hoe wie welk welke wer wann warum woher wohin`)

// dayNumber reads the number of a day with what may follow it: "11.", "1er", "3º".
func (c *calendar) dayNumber(r *dateReader, i int) (day, to int, ok bool) {
	low := r.low(i)
	if low == "" || low[0] < '0' || low[0] > '9' {
		return 0, 0, false
	}
	if low == c.firstDay {
		return 1, i + 1, true
	}
	digits := strings.TrimRight(low, "ºª°er")
	if day, ok = dayOfMonth(digits); !ok || len(digits) > 2 {
		return 0, 0, false
	}
	if to = i + 1; r.low(to) == "." && !r.tokens[to].gap {
		to++
	}
	return day, to, true
}

// monthNamed reads the name of a month, or its short form, after a day.
func (c *calendar) monthNamed(r *dateReader, i int) (month time.Month, to int) {
	low := r.plainWord(i)
	if m, ok := c.months[low]; ok {
		return time.Month(m), i + 1
	}
	if m, ok := c.short[low]; ok {
		if r.low(i+1) == "." && i+2 < len(r.tokens) {
			return time.Month(m), i + 2
		}
		return time.Month(m), i + 1
	}
	return 0, 0
}

func (c *calendar) passOf(r *dateReader, i int) int {
	if c.of[r.low(i)] {
		return i + 1
	}
	return i
}

// dayOfMonth reads "11. Mai", "el 3 de mayo de 2025", "3 bis 5 Juni", "Montag, den 12. Mai".
func (c *calendar) dayOfMonth(r *dateReader, i int) (dated, bool) {
	at := i
	if _, weekday := c.weekdays[r.low(i)]; weekday {
		if at++; r.low(at) == "," {
			at++
		}
		if articles[r.low(at)] {
			at++
		}
	}
	first, to, ok := c.dayNumber(r, at)
	if !ok {
		return dated{}, false
	}
	last := first
	if c.joins[r.low(to)] || r.low(to) == "-" || r.low(to) == "–" {
		end, after, ok := c.dayNumber(r, to+1)
		if !ok || end <= first {
			return dated{}, false
		}
		last, to = end, after
	}
	named := c.passOf(r, to)
	month, end := c.monthNamed(r, named)
	if _, english := months[r.low(named)]; end == 0 || english && named == at+1 {
		return dated{}, false // what English can read, it has read
	}
	to = end
	if year, ok := yearOf(r.low(c.passOf(r, to))); ok {
		a, ok1 := r.calendar(year, month, first)
		b, ok2 := r.calendar(year, month, last)
		return dated{from: i, to: c.passOf(r, to) + 1, start: a, end: b.AddDate(0, 0, 1)}, ok1 && ok2
	}
	a, ok := r.nearest(i, month, first)
	if !ok {
		return dated{}, false
	}
	b, ok := r.calendar(a.Year(), month, last)
	return dated{from: i, to: to, start: a, end: b.AddDate(0, 0, 1), relative: true}, ok
}

// monthAlone reads "im Mai", "mai 2025", "letzten März".
func (c *calendar) monthAlone(r *dateReader, i int) (dated, bool) {
	at, sign := i, 0
	before, to := c.before(r, i)
	if to > 0 {
		at, sign = to, before
	}
	month, ok := c.months[r.plainWord(at)]
	if !ok {
		return dated{}, false
	}
	if year, ok := yearOf(r.low(c.passOf(r, at+1))); ok && to == 0 {
		return r.monthOf(i, c.passOf(r, at+1)+1, year, time.Month(month), false), true
	}
	if to == 0 {
		after, end := c.afterNoun(r, at+1)
		switch {
		case end > 0:
			d, ok := r.namedMonth(i, end, time.Month(month), after)
			return d, ok
		case !has(r, i, c.inMonth):
			return dated{}, false
		}
		if sign = -1; r.tense.future {
			sign = 1
		}
		if time.Month(month) == r.today.Month() {
			sign = 0
		}
	}
	return r.namedMonth(i, at+1, time.Month(month), sign)
}
