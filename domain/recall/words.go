package recall

import (
	"bytes"
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
