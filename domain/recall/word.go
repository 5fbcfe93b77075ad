package recall

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// word is the word that is read now.
type word struct {
	text, spelled []byte
	// apostrophe is the index after the last apostrophe, 0 for none. full reports that the rest is ignored.
	apostrophe int
	full       bool
	// edges are where parts begin; inner counts those at capitals, mixed those between letters and digits or scripts.
	edges        []int
	inner, mixed int
	// plural reports that the last edge is that of a plural of capitals, if no more follows: PDFs.
	plural  int
	capital bool
	digits  bool
	marked  bool
	drops   bool
	// last is the shape of the last character, upperAt its index if it is upper case.
	last    shape
	upperAt int
	upper   bool
}

// shape is what a character is where parts of words begin.
type shape uint8

const (
	noShape shape = iota
	lowerShape
	upperShape
	digitShape
	hangulShape
)

// A word of more parts, or more often mixed, is a code or a hash: its parts say nothing.
const (
	mostEdges = 7
	mostMixed = 2
)

// begin notes the shape of the next character.
func (w *word) begin(next shape) {
	at := len(w.text)
	w.plural = 0
	switch {
	case w.last == noShape:
		w.capital = w.capital || at == 0 && next == upperShape
	case next == upperShape && w.last == lowerShape:
		w.edge(at)
		w.inner++
	case next == lowerShape && w.last == upperShape && w.upper && w.upperAt > 0:
		w.edge(w.upperAt)
		w.inner++
		w.plural = at + 1
	case next == digitShape != (w.last == digitShape), next == hangulShape != (w.last == hangulShape):
		w.edge(at)
		w.mixed++
	}
	if next == upperShape {
		w.upper, w.upperAt = w.last == upperShape, at
	}
	w.digits = w.digits || next == digitShape
	w.last = next
}

func (w *word) edge(at int) {
	if len(w.edges) <= mostEdges {
		w.edges = append(w.edges, at)
	}
}

// readWord reads a word, yields its tokens, and returns it and whether it has a digit.
func (s *scanner) readWord() (text []byte, digits bool) {
	w := &s.word
	*w = word{text: w.text[:0], spelled: w.spelled[:0], edges: w.edges[:0]}
	for s.at < len(s.text) {
		c := s.text[s.at]
		if c >= utf8.RuneSelf {
			if !s.readLetter() {
				break
			}
			continue
		}
		switch asciiKinds[c] {
		case asciiLower:
			w.begin(lowerShape)
		case asciiUpper:
			w.begin(upperShape)
			c += 'a' - 'A'
		case asciiDigit:
			w.begin(digitShape)
		default:
			if c != '\'' || !s.wordAt(s.at+1) || s.digitAt(s.at+1) {
				return s.endWord()
			}
			w.apostrophe, w.last = len(w.text), noShape
			s.at++
			continue
		}
		s.at++
		w.drops = true
		w.append(c)
	}
	return s.endWord()
}

func (w *word) append(c byte) {
	if w.full = w.full || len(w.text) >= termBytes; w.full {
		return
	}
	w.text = append(w.text, c)
	if w.marked {
		w.spelled = append(w.spelled, c)
	}
}

// readLetter reads a character beyond ASCII of a word; ok is false if the word ends before it.
func (s *scanner) readLetter() (ok bool) {
	w := &s.word
	r, size := utf8.DecodeRune(s.text[s.at:])
	c := characterOf(r)
	switch c.class {
	case invisible:
	case mark:
		if !w.drops {
			w.appendText(c.text, c.text)
		}
	case letter, hangul:
		shape := lowerShape
		if c.class == hangul {
			shape = hangulShape
		} else if c.upper {
			shape = upperShape
		}
		w.begin(shape)
		w.drops = c.dropsMarks
		w.appendText(c.text, c.lower)
	default: // a dot between two l is part of the Catalan letter
		next := s.at + size
		if r != '·' || next >= len(s.text) || s.text[next]|0x20 != 'l' || len(w.text) == 0 || w.text[len(w.text)-1] != 'l' {
			return false
		}
	}
	s.at += size
	return true
}

func (w *word) appendText(text, lower string) {
	if w.full = w.full || len(w.text)+len(text) > termBytes; w.full {
		return
	}
	if !w.marked && lower != text {
		w.marked = true
		w.spelled = append(w.spelled, w.text...)
	}
	w.text = append(w.text, text...)
	if w.marked {
		w.spelled = append(w.spelled, lower...)
	}
}

// endWord yields the tokens of the word.
func (s *scanner) endWord() (text []byte, digits bool) {
	w := &s.word
	initial := s.initial
	s.initial = false
	if len(w.text) == 0 { // a word of invisible characters alone
		return nil, false
	}
	if sign := s.readSign(); sign != nil {
		s.group.letters = true
		s.yield(token{text: sign, kind: aWord, initial: initial})
		return sign, false
	}
	elision := 0
	text = w.text
	if w.apostrophe > 0 {
		text = withoutContraction(text, w.apostrophe)
		if len(text) == len(w.text) {
			elision = w.apostrophe
		}
	}
	text = withoutOrdinal(text)
	plural := w.plural == len(w.text) && len(w.edges) > 0 && text[len(text)-1] == 's'
	if plural {
		w.edges = w.edges[:len(w.edges)-1]
		w.inner--
	}
	t := token{text: text, capital: w.capital, capitals: w.inner > 0, initial: initial}
	if w.marked && len(text) == len(w.text) {
		t.spelled = w.spelled
	}
	s.group.digits = s.group.digits || w.digits
	s.group.letters = s.group.letters || w.mixed > 0 || !w.digits
	s.yield(t)
	if elides(text, elision) {
		rest := token{text: text[elision:], kind: aPart}
		if w.marked && bytes.Equal(w.spelled[:elision], text[:elision]) {
			rest.spelled = w.spelled[elision:]
		}
		s.yield(rest)
	}
	if plural {
		s.yield(token{text: text[:len(text)-1], kind: aPart})
	}
	s.yieldParts(text)
	return text, w.digits
}

// yieldParts yields the parts between edges.
func (s *scanner) yieldParts(text []byte) {
	w := &s.word
	if len(w.edges) == 0 || len(w.edges) > mostEdges || w.mixed > mostMixed {
		return
	}
	from := 0
	for _, to := range append(w.edges, len(text)) {
		to = min(to, len(text))
		if from < to && to-from < len(text) {
			s.yield(token{text: text[from:to], kind: aPart})
		}
		from = to
	}
}

// readSign reads the signs of C++, C# and the like: the word is another one with them.
func (s *scanner) readSign() []byte {
	w := &s.word
	n := len(w.text)
	if n > 2 || w.digits || w.text[0] >= utf8.RuneSelf || w.text[n-1] >= utf8.RuneSelf || w.apostrophe > 0 {
		return nil
	}
	end := s.at
	for end < len(s.text) && end < s.at+2 && (s.text[end] == '+' || s.text[end] == '#') {
		end++
	}
	if end == s.at || s.wordAt(end) && (s.text[end-1] != '+' || end < s.at+2 || !s.digitAt(end)) ||
		end < len(s.text) && (s.text[end] == '+' || s.text[end] == '#') {
		return nil
	}
	w.text = append(w.text, s.text[s.at:end]...)
	s.at = end
	return w.text
}

// elides reports whether what is before an apostrophe is an article or the like, as in l'eau and dell'arte, so that the
// rest is a word too.
func elides(text []byte, apostrophe int) bool {
	if apostrophe == 0 || len(text)-apostrophe < 3 {
		return false
	}
	before := text[:apostrophe]
	return len(before) == 1 || slices.Contains(elisions, string(before))
}

var elisions = []string{"qu", "un", "all", "dell", "nell", "sull", "dall", "quell", "gl", "jusqu", "lorsqu", "puisqu"}

// withoutContraction drops a possessive or a short verb after an apostrophe: Ana's, we'll, don't.
func withoutContraction(word []byte, apostrophe int) []byte {
	switch string(word[apostrophe:]) {
	case "s", "ll", "re", "ve", "m", "d":
		return word[:apostrophe]
	case "t":
		if apostrophe > 1 && word[apostrophe-1] == 'n' {
			return word[:apostrophe-1]
		}
	}
	return word
}

// withoutOrdinal makes 7 of 7th, so that all spellings of a date match.
func withoutOrdinal(word []byte) []byte {
	n := len(word) - 2
	if n < 1 || !isDigit(word[n-1]) {
		return word
	}
	switch string(word[n:]) {
	case "st", "nd", "rd", "th":
		for _, c := range word[:n] {
			if !isDigit(c) {
				return word
			}
		}
		return word[:n]
	default:
		return word
	}
}
