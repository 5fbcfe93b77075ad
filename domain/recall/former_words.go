package recall

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// formerWords calls yield for every word of a text, in order: lower case, without marks and possessives.
// Words joined by one of @ . _ - : / + are yielded one by one and, if the whole has a digit, an @
// or a _, once more joined. Scripts without spaces are yielded as pairs of characters. A word is
// valid until yield returns.
func formerWords(text string, yield func(word []byte)) {
	s := formerScanner{yield: yield}
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(text[i:])
		}
		s.next(r)
		i += size
	}
	s.endCompound()
}

// formerScanner collects words from code points in one pass. Its buffers hold at most a few terms.
type formerScanner struct {
	yield func([]byte)
	// word is the current word, folded; apostrophe is the index after an apostrophe in it, 0 for none.
	word       []byte
	apostrophe int
	// compound is the current run of joined words, parts their number; whole reports whether the run
	// is a term too.
	compound []byte
	parts    int
	whole    bool
	// pending is the joining character that may connect the previous word with the next.
	pending byte
	// previous is the previous character, of a script without spaces; alone reports that it was not
	// part of a pair yet.
	previous rune
	alone    bool
}

func (s *formerScanner) next(r rune) {
	if r < utf8.RuneSelf {
		s.ascii(byte(r))
		return
	}
	if r >= 0xFF01 && r <= 0xFF5E { // full-width forms of ASCII
		s.ascii(byte(r - 0xFEE0))
		return
	}
	switch r {
	case '\u2018', '\u2019', '\u201B', '\u02BC':
		s.ascii('\'')
		return
	case '\u00AD', '\u200B', '\u200C', '\u200D', '\uFEFF': // invisible within a word
		return
	}
	switch {
	case unicode.Is(unicode.Mn, r):
		// Skip a mark: a word with and without it is the same term.
	case formerSpaceless(r):
		if len(s.word) > 0 || s.parts > 0 {
			s.endCompound()
		}
		s.pair(r)
	case unicode.IsLetter(r):
		s.letter(r)
	case unicode.IsDigit(r):
		s.whole = true
		s.letter(r)
	case unicode.Is(unicode.Mc, r):
		s.letter(r)
	default:
		s.endCompound()
	}
}

func (s *formerScanner) ascii(c byte) {
	switch {
	case c >= 'a' && c <= 'z':
		s.add(c)
	case c >= 'A' && c <= 'Z':
		s.add(c + 'a' - 'A')
	case c >= '0' && c <= '9':
		s.whole = true
		s.add(c)
	case c == '\'':
		if len(s.word) == 0 || s.apostrophe == len(s.word) {
			s.endCompound()
			return
		}
		s.endPossessive()
		s.apostrophe = len(s.word)
	case c == '@' || c == '.' || c == '_' || c == '-' || c == ':' || c == '/' || c == '+' || c == ',':
		if len(s.word) == 0 || s.apostrophe == len(s.word) {
			s.endCompound()
			return
		}
		if c == ',' && !isDigit(s.word[len(s.word)-1]) {
			s.endCompound()
			return
		}
		s.endWord()
		s.pending = c
		s.whole = s.whole || c == '@' || c == '_'
	default:
		s.endCompound()
	}
}

// letter adds a letter beyond ASCII, without its accents.
func (s *formerScanner) letter(r rune) {
	r = unicode.ToLower(r)
	if plain, ok := formerPlainLetters[r]; ok {
		for i := range len(plain) {
			s.add(plain[i])
		}
		return
	}
	s.startPart()
	if len(s.word) < termBytes {
		s.word = utf8.AppendRune(s.word, r)
	}
}

func (s *formerScanner) add(c byte) {
	s.startPart()
	if len(s.word) < termBytes {
		s.word = append(s.word, c)
	}
}

// startPart begins a word, unless one has begun. A pending character joins it to the word before.
func (s *formerScanner) startPart() {
	s.endPairs()
	if s.pending == 0 {
		return
	}
	if len(s.compound) < 2*termBytes {
		s.compound = append(s.compound, s.pending)
	}
	s.pending = 0
}

// endPossessive drops an earlier apostrophe: in "rock'n'roll" only the last one can begin a
// possessive.
func (s *formerScanner) endPossessive() { s.apostrophe = 0 }

func (s *formerScanner) endWord() {
	if len(s.word) == 0 {
		return
	}
	word := s.word
	if s.apostrophe > 0 {
		word = withoutContraction(word, s.apostrophe)
	}
	word = withoutOrdinal(word)
	s.yield(word)
	s.parts++
	if len(s.compound) < 2*termBytes {
		s.compound = append(s.compound, word...)
	}
	s.word, s.apostrophe = s.word[:0], 0
}

func (s *formerScanner) endCompound() {
	s.endWord()
	s.endPairs()
	if s.parts > 1 && s.whole {
		s.yield([]byte(cut(string(s.compound), termBytes)))
	}
	s.compound, s.parts, s.whole, s.pending = s.compound[:0], 0, false, 0
}

func (s *formerScanner) pair(r rune) {
	if s.previous != 0 {
		s.yield(utf8.AppendRune(utf8.AppendRune(nil, s.previous), r))
	}
	s.alone = s.previous == 0
	s.previous = r
}

func (s *formerScanner) endPairs() {
	if s.previous != 0 && s.alone {
		s.yield(utf8.AppendRune(nil, s.previous))
	}
	s.previous, s.alone = 0, false
}

// formerSpaceless reports whether the script of a character is written without spaces between words.
func formerSpaceless(r rune) bool {
	if r < 0x0E00 {
		return false
	}
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer,
		unicode.Myanmar)
}

// formerPlainLetters folds accented Latin letters to plain ones.
var formerPlainLetters = formerFoldTable(
	"àáâãāăąǎ", "a", "æ", "ae", "çćĉċč", "c", "ďđð", "d", "èéêëēĕėęě", "e", "ĝğġģ", "g", "ĥħ", "h", "ìíîïĩīĭįı", "i",
	"ĵ", "j", "ķ", "k", "ĺļľŀł", "l", "ñńņňŋ", "n", "òóôõöøōŏőǒ", "o", "œ", "oe", "ŕŗř", "r", "śŝşšș", "s", "ß", "ss",
	"ţťŧț", "t", "þ", "th", "ùúûüũūŭůűųǔ", "u", "ŵ", "w", "ýÿŷ", "y", "źżž", "z", "äå", "a",
)

func formerFoldTable(pairs ...string) map[rune]string {
	table := make(map[rune]string)
	for i := 0; i < len(pairs); i += 2 {
		for _, r := range pairs[i] {
			table[r] = strings.ToLower(pairs[i+1])
		}
	}
	return table
}
