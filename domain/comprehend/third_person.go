package comprehend

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// lineWriter writes tokens of a clause as one line in the third person: "I" becomes the speaker.
type lineWriter struct {
	c    *clause
	b    strings.Builder
	they bool // the speaker is the subject: later words for the speaker are pronouns
	glue bool // the last word was replaced, so a contraction after it needs a space
	pend rune // the next verb must agree: 's' with a name, 'p' with "they", 0 with neither
}

// line returns the clause as a line, "" if it cannot be written in the third person, or is too long
// or too short.
func (c *clause) line() string { return c.say(c.from, c.to) }

// say returns the tokens [from, to) of the clause as a line.
func (c *clause) say(from, to int) string {
	v := lineWriter{c: c}
	if !v.write(from, to) {
		return ""
	}
	return finishLine(v.b.String(), c.s.who.name)
}

// phrase returns the tokens [from, to) as part of a line, without a capital at the beginning; "" if
// they cannot be written.
func (c *clause) phrase(from, to int) string {
	v := lineWriter{c: c, they: c.kind == first || c.kind == firstPlural}
	if !v.write(from, to) {
		return ""
	}
	return trimLine(v.b.String())
}

// finishLine capitalises a line and removes the punctuation at its end. A name keeps its case.
func finishLine(line, name string) string {
	line = trimLine(line)
	if utf8.RuneCountInString(line) > MaxLine || !strings.Contains(line, " ") {
		return ""
	}
	if name != "" && strings.HasPrefix(line, name) {
		return line
	}
	r, size := utf8.DecodeRuneInString(line)
	return string(unicode.ToUpper(r)) + line[size:]
}

// trimLine removes white space, emoji and closing punctuation from the end of a line, and joins its
// white space.
func trimLine(line string) string {
	line = strings.TrimRightFunc(flat(line), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !strings.ContainsRune(")\"”'’%€$£+#]`", r)
	})
	if strings.Count(line, `"`)%2 == 1 {
		line = strings.Trim(line, `"`)
	}
	return strings.TrimSpace(line)
}

// write appends the tokens [from, to).
func (v *lineWriter) write(from, to int) bool {
	name := v.c.s.who.name
	for i := from; i < to; i++ {
		t := v.c.s.tokens[i]
		if t.gap && i > from {
			v.b.WriteByte(' ')
		}
		word, ok := v.word(i, name)
		if !ok {
			return false
		}
		v.b.WriteString(word)
		v.date(i, from, to)
	}
	return v.pend == 0
}

// date writes the resolved date after a relative expression that ends with token i.
func (v *lineWriter) date(i, from, to int) {
	for _, d := range v.c.s.dates {
		if d.to != i+1 || !d.relative || d.from < from {
			continue
		}
		if next := v.c.low(i + 1); i+1 < to && (next == "'s" || next == "'" || next == "-") {
			continue
		}
		v.b.WriteString(" (" + d.describe() + ")")
	}
}

// word returns token i in the third person. Without a speaker every token stays as it is.
func (v *lineWriter) word(i int, name string) (string, bool) {
	t := v.c.s.tokens[i]
	if name == "" {
		return t.text, true
	}
	glue := ""
	if v.glue && !t.gap && t.word {
		glue = " "
	}
	v.glue = false
	if v.pend != 0 {
		return v.agree(i, glue)
	}
	plural := t.low == "we" || t.low == "us" || t.low == "our" || t.low == "ours" || t.low == "ourselves"
	subject := v.c.kind == first || v.c.kind == firstPlural
	said := name
	if plural {
		said = name + " and others"
	}
	if t.low == "our" && !v.they {
		said = name
	}
	switch t.low {
	case "i", "we":
		v.glue = true
		if v.they {
			v.pend = 'p'
			return "they", true
		}
		v.they = subject && i >= v.c.subj
		v.pend = 's'
		if t.low == "we" || v.c.plural && i < v.c.subjEnd {
			v.pend = 'p'
		}
		return said, true
	case "me":
		return said, true // "them" could be anybody
	case "us":
		if v.they {
			return "them", true
		}
		return said, true
	case "my", "our":
		if v.they {
			return "their", true
		}
		return possessive(said), true
	case "mine", "ours":
		if v.they {
			return "theirs", true
		}
		return "", false
	case "myself", "ourselves":
		return "themselves", v.they
	}
	if v.they && v.coordinated(i) {
		lemma, _ := is(t.low, base)
		return thirdPerson(lemma), true
	}
	if v.they && v.c.kind == first && !v.c.plural && i > v.c.verb && (t.low == "have" || t.low == "am") &&
		(v.c.low(i-1) == "and" || v.c.low(i-1) == "but") && t.gap {
		return map[string]string{"have": "has", "am": "is"}[t.low], true
	}
	return t.text, true
}

func possessive(name string) string {
	if strings.HasSuffix(name, "s") {
		return name + "'"
	}
	return name + "'s"
}

// agree writes the verb after a replaced "I" or "we", or the word between them.
func (v *lineWriter) agree(i int, glue string) (string, bool) {
	t := v.c.s.tokens[i]
	number := v.pend
	if adverbs[t.low] || t.low == "no" && v.c.low(i+1) == "longer" || t.low == "longer" || t.low == "and" ||
		t.low == "," || t.low == "both" {
		v.glue = t.low != ","
		return glue + t.text, true
	}
	v.pend = 0
	pick := func(singular, plural string) (string, bool) {
		v.glue = false
		word := plural
		if number == 's' {
			word = singular
		}
		if !t.gap {
			word = " " + word
		}
		return word, true
	}
	switch t.low {
	case "am", "are":
		return pick("is", "are")
	case "was", "were":
		return pick("was", "were")
	case "have":
		return pick("has", "have")
	case "do":
		return pick("does", "do")
	case "'d":
		if v.c.perfect && i == v.c.finite {
			return " had", true
		}
		return " would", true
	case "will", "shall":
		if t.text[0] == '\'' || !t.gap && len(t.text) != len(t.low) {
			return " will", true
		}
		return t.text, true
	case "not", "'s":
		return "", false
	}
	if number == 'p' || modals[t.low] || t.low == "had" || t.low == "did" || t.low == "used" {
		return t.text, true
	}
	lemma, present := is(t.low, base)
	_, wasPast := is(t.low, past)
	switch {
	case wasPast && (!present || i != v.c.finite || v.c.past):
		return t.text, true
	case present:
		return thirdPerson(lemma), true
	}
	return "", false
}

// coordinated reports whether token i is a second verb of a first-person subject in the present: "I
// work here and live there".
func (v *lineWriter) coordinated(i int) bool {
	c := v.c
	if c.kind != first || c.past || c.infinitive() || c.modal != "" || c.finite != c.verb || c.copula() || i <= c.verb {
		return false
	}
	if before := c.low(i - 1); before != "and" && before != "but" && before != "or" {
		return false
	}
	_, ok := is(c.low(i), base)
	next := c.low(i + 1)
	return ok && (determiners[next] || prepositions[next])
}
