package recall

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// token is one term of a text before its language is known. Its bytes are valid until the next one.
type token struct {
	text []byte
	// spelled is the word in lower case with its marks; empty if it has none.
	spelled []byte
	kind    tokenKind
	// capital reports an upper-case first letter, capitals one inside, initial that the word begins a sentence.
	capital, capitals, initial bool
}

// tokenKind is what a token is in its text.
type tokenKind uint8

const (
	// aWord is a word as it is written, or a character of a script without spaces that is alone.
	aWord tokenKind = iota
	// aPair are two characters of a script without spaces.
	aPair
	// aPart is a part of a word.
	aPart
	// aForm is another form of what words say together: joined, squeezed, or a number.
	aForm
	// aUnit is a character of a longer run of a script without spaces, or a letter of an abbreviation. No question asks
	// for it.
	aUnit
	// aSymbol is an emoji or the like.
	aSymbol
)

// scanner splits texts into tokens in one pass, plus a look at each number. Its buffers are used again.
type scanner struct {
	normalizer
	yield func(token)
	// text is the normal text, at the next byte of it.
	text    []byte
	at      int
	initial bool
	word    word
	// compound is the current run of joined words, squeezed the same without - and _ between the words of a group.
	compound, squeezed []byte
	group              group
	// number is a buffer for the readings of a number. Runs of digits are looked at once: as a phone number up to
	// phoneEnd, as groups of thousands up to groupsEnd.
	number              []byte
	phoneEnd, groupsEnd int
	units               [2][]byte
}

// group are the words of a compound that - or _ join.
type group struct {
	words                      int
	letters, digits, connector bool
}

// scan calls yield for every token of a text, in order.
//
// Words are folded, without possessives. A word with inner capitals, and one of letters and digits, is followed by its
// parts. Words joined by one of @ . _ - : / + are yielded one by one and, if the whole has a digit, an @, a _ or a dot,
// or is a path of three parts, once more joined, and without - and _ if those join letters and digits, or names.
// Scripts without spaces are yielded character by character and in pairs, symbols one by one, and an abbreviation as
// the word that its letters are.
func (s *scanner) scan(text string, yield func(token)) {
	s.yield, s.text, s.at, s.initial = yield, s.normalize(text), 0, true
	s.phoneEnd, s.groupsEnd = 0, 0
	for s.at < len(s.text) {
		if c := s.text[s.at]; c < utf8.RuneSelf {
			if asciiKinds[c] == 0 {
				s.separate(c)
			} else {
				s.readCompound()
			}
			continue
		}
		r, size := utf8.DecodeRune(s.text[s.at:])
		switch characterOf(r).class {
		case letter, hangul:
			s.readCompound()
		case unit:
			s.readUnits()
		case symbol:
			s.readSymbol(r, size)
		case separator:
			s.at += size
			s.initial = s.initial || r == '。' || r == '¿' || r == '¡' || r == '…'
		default: // without a character that it belongs to
			s.at += size
		}
	}
}

// Kinds of ASCII characters that are part of words.
const (
	asciiLower = 1 + iota
	asciiUpper
	asciiDigit
)

var asciiKinds = func() (kinds [utf8.RuneSelf]uint8) {
	for c := range kinds {
		switch {
		case c >= 'a' && c <= 'z':
			kinds[c] = asciiLower
		case c >= 'A' && c <= 'Z':
			kinds[c] = asciiUpper
		case c >= '0' && c <= '9':
			kinds[c] = asciiDigit
		}
	}
	return kinds
}()

// separate passes a separator. A word after a dot that no word is before has a form with the dot, as .NET.
func (s *scanner) separate(c byte) {
	s.at++
	switch c {
	case '.':
		if s.wordAt(s.at) && !s.digitAt(s.at) && s.text[s.at] < utf8.RuneSelf &&
			(s.at == 1 || bytes.IndexByte([]byte(" \t\n\r(\"'"), s.text[s.at-2]) >= 0) {
			s.dotted()
			return
		}
		s.initial = true
	case '!', '?', '\n':
		s.initial = true
	}
}

// dotted yields the form of a word with the dot before it.
func (s *scanner) dotted() {
	form := append(s.number[:0], '.')
	for _, c := range s.text[s.at:] {
		if c >= utf8.RuneSelf || asciiKinds[c] == 0 || len(form) == termBytes {
			break
		}
		if asciiKinds[c] == asciiUpper {
			c += 'a' - 'A'
		}
		form = append(form, c)
	}
	s.number = form
	s.yield(token{text: form, kind: aForm})
}

// wordAt reports whether a word begins at a byte of the text.
func (s *scanner) wordAt(at int) bool {
	if at >= len(s.text) {
		return false
	}
	if c := s.text[at]; c < utf8.RuneSelf {
		return asciiKinds[c] != 0
	}
	r, _ := utf8.DecodeRune(s.text[at:])
	class := characterOf(r).class
	return class == letter || class == hangul
}

func (s *scanner) digitAt(at int) bool { return at >= 0 && at < len(s.text) && isDigit(s.text[at]) }

// readCompound yields the tokens of a word and of those joined to it.
func (s *scanner) readCompound() {
	if s.digitAt(s.at) && s.readNumber() || s.readAbbreviation() {
		return
	}
	s.compound, s.squeezed, s.group = s.compound[:0], s.squeezed[:0], group{}
	parts, whole := 0, false
	for {
		text, digits := s.readWord()
		parts++
		whole = whole || digits
		if len(s.compound) < 2*termBytes {
			s.compound = append(s.compound, text...)
		}
		if len(s.squeezed) <= termBytes {
			s.squeezed = append(s.squeezed, text...)
		}
		s.group.words++
		if s.at >= len(s.text) || !joins(s.text[s.at]) || !s.wordAt(s.at+1) {
			break
		}
		c := s.text[s.at]
		if c == ',' && !s.digitAt(s.at-1) {
			break
		}
		s.at++
		whole = whole || c == '@' || c == '_' || c == '.' || c == '/' && parts > 1 // a path has two at least
		if c == '_' {
			s.group.connector = true
		} else if c != '-' {
			s.endGroup()
		}
		if len(s.compound) < 2*termBytes {
			s.compound = append(s.compound, c)
		}
	}
	if parts > 1 && whole {
		joined := s.compound
		if len(joined) > termBytes {
			joined = trimmed(joined)
		}
		s.yield(token{text: joined, kind: aForm})
		if len(joined) > 2 && joined[0] == 'v' && isDigit(joined[1]) { // a version is written without the v too
			s.yield(token{text: joined[1:], kind: aForm})
		}
	}
	s.endGroup()
}

// endGroup yields the words that - or _ join as one, so that P-40 and P40, max_rows and maxRows meet.
func (s *scanner) endGroup() {
	g := s.group
	if g.words > 1 && (g.connector || g.letters && g.digits) && len(s.squeezed) <= termBytes {
		s.yield(token{text: s.squeezed, kind: aForm})
	}
	s.squeezed, s.group = s.squeezed[:0], group{}
}

func joins(c byte) bool {
	switch c {
	case '@', '.', '_', '-', ':', '/', '+', ',':
		return true
	}
	return false
}

// trimmed shortens a text of more bytes than a term has, at the beginning of a code point.
func trimmed(text []byte) []byte {
	n := termBytes
	for n > 0 && text[n]&0xC0 == 0x80 {
		n--
	}
	return text[:n]
}

// readUnits yields a run of a script without spaces: its characters, each with its marks, and their pairs.
func (s *scanner) readUnits() {
	before, current := s.units[0][:0], s.units[1][:0]
	count, initial := 0, s.initial
	end := func() {
		if count > 1 {
			s.number = append(append(s.number[:0], before...), current...)
			s.yield(token{text: s.number, kind: aPair})
		}
		s.yield(token{text: current, kind: aUnit})
		before, current = current, before[:0]
	}
	for s.at < len(s.text) {
		r, size := utf8.DecodeRune(s.text[s.at:])
		c := characterOf(r)
		if c.class == unit {
			if count > 0 {
				end()
			}
			count++
			current = append(current, c.text...)
		} else if c.class == mark && len(current)+len(c.text) <= termBytes/2 {
			current = append(current, c.text...)
		} else if c.class != mark && c.class != invisible {
			break
		}
		s.at += size
	}
	if count == 1 {
		s.yield(token{text: current, kind: aWord, initial: initial})
	} else {
		end()
	}
	s.units, s.initial = [2][]byte{before, current}, false
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

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
