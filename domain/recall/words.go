package recall

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// termBytes is the most bytes of a term; the rest of a longer word is ignored.
const termBytes = 64

// words calls yield for every word of a text: lower case, without marks and possessives, in order. Words that are joined by
// one of @ . _ - : / + come one by one and, where the whole has a digit, an @ or a _, once more together. Scripts that
// are written without spaces come as pairs of characters. A word is valid until yield returns.
func words(text string, yield func(word []byte)) {
	s := scanner{yield: yield}
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

// scanner collects words from code points in one pass. Its buffers never grow beyond a few terms.
type scanner struct {
	yield func([]byte)
	// word is the current word, folded; apostrophe is the index behind an apostrophe in it, 0 for none.
	word       []byte
	apostrophe int
	// compound is the current run of joined words; parts is how many, whole whether it is a term of its own.
	compound []byte
	parts    int
	whole    bool
	// pending is the joining character that may connect the word before with the word to come.
	pending byte
	// previous is the character before, of a script without spaces; alone says that it was not part of a pair yet.
	previous rune
	alone    bool
}

func (s *scanner) next(r rune) {
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
		// A mark changes how a letter looks; with and without it a word is the same.
	case spaceless(r):
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

func (s *scanner) ascii(c byte) {
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

// letter adds a letter beyond ASCII, folded to what it is without accents.
func (s *scanner) letter(r rune) {
	r = unicode.ToLower(r)
	if plain, ok := plainLetters[r]; ok {
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

func (s *scanner) add(c byte) {
	s.startPart()
	if len(s.word) < termBytes {
		s.word = append(s.word, c)
	}
}

// startPart begins a word, where none has begun: what was pending now joins it to the word before.
func (s *scanner) startPart() {
	s.endPairs()
	if s.pending == 0 {
		return
	}
	if len(s.compound) < 2*termBytes {
		s.compound = append(s.compound, s.pending)
	}
	s.pending = 0
}

// endPossessive drops an earlier apostrophe: in "rock'n'roll" only the last one can begin a possessive.
func (s *scanner) endPossessive() { s.apostrophe = 0 }

func (s *scanner) endWord() {
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

func (s *scanner) endCompound() {
	s.endWord()
	s.endPairs()
	if s.parts > 1 && s.whole {
		s.yield([]byte(cut(string(s.compound), termBytes)))
	}
	s.compound, s.parts, s.whole, s.pending = s.compound[:0], 0, false, 0
}

func (s *scanner) pair(r rune) {
	if s.previous != 0 {
		s.yield(utf8.AppendRune(utf8.AppendRune(nil, s.previous), r))
	}
	s.alone = s.previous == 0
	s.previous = r
}

func (s *scanner) endPairs() {
	if s.previous != 0 && s.alone {
		s.yield(utf8.AppendRune(nil, s.previous))
	}
	s.previous, s.alone = 0, false
}

// withoutContraction drops what stands behind an apostrophe where it is a possessive or a short verb: Ana's, we'll, don't.
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

// withoutOrdinal makes 7 of 7th, so that dates are found however they are written.
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

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// spaceless says that a character is of a script that is written without spaces between words.
func spaceless(r rune) bool {
	if r < 0x0E00 {
		return false
	}
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// symbols are the visible characters of a text that has no words, each once and at most a few: an answer may be a thumb.
func symbols(text string) []string {
	const most = 16
	var found []string
	for _, r := range text {
		if unicode.IsSpace(r) || !unicode.IsGraphic(r) || unicode.Is(unicode.Mn, r) {
			continue
		}
		if s := string(r); !contains(found, s) {
			found = append(found, s)
		}
		if len(found) == most {
			break
		}
	}
	return found
}

func contains(list []string, s string) bool {
	for _, other := range list {
		if other == s {
			return true
		}
	}
	return false
}

// plainLetters folds the accented letters of Latin to what is typed without them.
var plainLetters = foldTable(
	"àáâãāăąǎ", "a", "æ", "ae", "çćĉċč", "c", "ďđð", "d", "èéêëēĕėęě", "e", "ĝğġģ", "g", "ĥħ", "h", "ìíîïĩīĭįı", "i",
	"ĵ", "j", "ķ", "k", "ĺļľŀł", "l", "ñńņňŋ", "n", "òóôõöøōŏőǒ", "o", "œ", "oe", "ŕŗř", "r", "śŝşšș", "s", "ß", "ss",
	"ţťŧț", "t", "þ", "th", "ùúûüũūŭůűųǔ", "u", "ŵ", "w", "ýÿŷ", "y", "źżž", "z", "äå", "a",
)

func foldTable(pairs ...string) map[rune]string {
	table := make(map[rune]string)
	for i := 0; i < len(pairs); i += 2 {
		for _, r := range pairs[i] {
			table[r] = strings.ToLower(pairs[i+1])
		}
	}
	return table
}
