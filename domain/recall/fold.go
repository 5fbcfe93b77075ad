package recall

import (
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// class is what a character is in a word.
type class uint8

const (
	separator class = iota
	// invisible: it changes nothing within a word.
	invisible
	// mark belongs to the character before it.
	mark
	// letter is a letter of a script with spaces, hangul a Korean syllable or a part of one.
	letter
	hangul
	// unit is a character of a script without spaces.
	unit
	// symbol is an emoji or another sign that is a word.
	symbol
)

// character is a code point after normalization, as words have it.
type character struct {
	class class
	// text is the folded character: without case and, in scripts where words are written without marks too, without marks.
	text string
	// lower is the lower-case character with its marks, as stemmers of languages expect it.
	lower string
	// upper reports an upper-case letter; dropsMarks that marks after it are ignored.
	upper, dropsMarks bool
	alphabet          alphabet
}

// alphabet is the script of a word that a language with a stemmer uses.
type alphabet uint8

const (
	otherAlphabet alphabet = iota
	latin
	cyrillic
	korean
)

// blocks caches characters, 256 code points at a time. A block may be made twice, with the same content.
var blocks [(unicode.MaxRune + 1) >> 8]atomic.Pointer[[256]character]

func characterOf(r rune) *character {
	block := blocks[r>>8].Load()
	if block == nil {
		block = new([256]character)
		fold := cases.Fold()
		for i := range block {
			block[i] = makeCharacter(r&^0xFF|rune(i), fold)
		}
		blocks[r>>8].Store(block)
	}
	return &block[r&0xFF]
}

func makeCharacter(r rune, fold cases.Caser) character {
	switch {
	case r == '\u0345': // the iota below a Greek vowel folds to a letter
		return character{class: letter, text: "ι", lower: "ι", dropsMarks: true}
	case ignorable(r):
		return character{class: invisible}
	case unicode.IsMark(r):
		return character{class: mark, text: string(r)}
	case r == 'ー', r == '〆', unicode.In(r, spacelessScripts...) && (unicode.IsLetter(r) || unicode.Is(unicode.Nl, r)):
		return character{class: unit, text: string(r)}
	case unicode.Is(unicode.Hangul, r) && unicode.IsLetter(r):
		return character{class: hangul, text: string(r), lower: string(r), alphabet: korean}
	case isSymbol(r):
		return character{class: symbol, text: string(r)}
	case !unicode.IsLetter(r): // digits are those of ASCII
		return character{}
	}
	c := character{class: letter, upper: unicode.IsUpper(r) || unicode.IsTitle(r), lower: string(unicode.ToLower(r))}
	c.dropsMarks = unicode.In(r, unmarkedScripts...)
	switch {
	case unicode.Is(unicode.Latin, r):
		c.alphabet = latin
	case unicode.Is(unicode.Cyrillic, r):
		c.alphabet = cyrillic
	}
	folded := fold.String(c.lower) // as if all cases were one: Cherokee folds to upper case
	if !c.dropsMarks {
		c.text = norm.NFKC.String(folded)
		return c
	}
	var plain strings.Builder
	for _, part := range norm.NFKD.String(folded) {
		if other, ok := plainLetters[part]; ok {
			plain.WriteString(other)
		} else if !unicode.IsMark(part) {
			plain.WriteRune(part)
		}
	}
	c.text = plain.String()
	return c
}

// spacelessScripts are written without spaces between words. Marks are dropped in unmarkedScripts alone: in others they
// make another letter.
var (
	spacelessScripts = []*unicode.RangeTable{
		unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar,
		unicode.Bopomofo,
	}
	unmarkedScripts = []*unicode.RangeTable{
		unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Hebrew, unicode.Arabic,
	}
)

// plainLetters are letters that Unicode does not decompose, each with the letters that it is written with elsewhere:
// Latin ones, and Arabic ones that differ by language or by habit.
var plainLetters = map[rune]string{
	'æ': "ae", 'ð': "d", 'đ': "d", 'ħ': "h", 'ı': "i", 'ł': "l", 'ŋ': "n", 'ø': "o", 'œ': "oe", 'þ': "th", 'ŧ': "t",
	'ĸ': "k", 'ƀ': "b", 'ɓ': "b", 'ɖ': "d", 'ɗ': "d", 'ƒ': "f", 'ɠ': "g", 'ɨ': "i", 'ƙ': "k", 'ɲ': "n", 'ƥ': "p",
	'ƭ': "t", 'ʉ': "u", 'ʋ': "v", 'ƴ': "y", 'ƶ': "z", 'ɛ': "e", 'ɔ': "o", 'ə': "e",
	'ٱ': "ا", 'ى': "ي", 'ی': "ي", 'ې': "ي", 'ة': "ه", 'ہ': "ه", 'ھ': "ه", 'ە': "ه", 'ک': "ك",
}

// ignorable reports whether a character is invisible, or only stretches a word: joiners, soft hyphens, directions,
// variation selectors, the Arabic tatweel, the Hebrew signs of abbreviation, the tones of Bopomofo.
func ignorable(r rune) bool {
	switch r {
	case '\u00AD', '\u02C7', '\u02CA', '\u02CB', '\u034F', '\u0640', '\u05F3', '\u05F4', '\u115F', '\u1160', '\u3164',
		'\uFEFF':
		return true
	}
	return unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) ||
		unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// digitOf returns the value of a decimal digit: Unicode lists those of a script in order, from zero.
func digitOf(r rune) int {
	for _, group := range unicode.Nd.R16 {
		if r <= rune(group.Hi) {
			return int(r-rune(group.Lo)) % 10
		}
	}
	for _, group := range unicode.Nd.R32 {
		if r <= rune(group.Hi) {
			return int(r-rune(group.Lo)) % 10
		}
	}
	return 0
}

// normalizer brings texts to the form in which all spellings of a character are one: NFKC, digits and apostrophes as in
// ASCII, a space for what is no character. Its buffers are used again.
type normalizer struct{ text, run []byte }

// normalize returns a normal text, valid until the next call. It is at most about eleven times as long.
func (n *normalizer) normalize(text string) []byte {
	n.text = n.text[:0]
	for i := 0; i < len(text); {
		end := i
		for end < len(text) && text[end] < utf8.RuneSelf {
			end++
		}
		n.text = append(n.text, text[i:end]...)
		if i = end; i == len(text) {
			break
		}
		for end < len(text) && text[end] >= utf8.RuneSelf {
			end++
		}
		if i > 0 && !norm.NFKC.PropertiesString(text[i:end]).BoundaryBefore() { // a mark of the character before
			i--
			n.text = n.text[:len(n.text)-1]
		}
		n.appendRun(text[i:end])
		i = end
	}
	return n.text
}

func (n *normalizer) appendRun(run string) {
	n.run = norm.NFKC.AppendString(n.run[:0], run)
	for i := 0; i < len(n.run); {
		r, size := utf8.DecodeRune(n.run[i:])
		switch r {
		case '\u2018', '\u2019', '\u201B', '\u02BC':
			n.text = append(n.text, '\'')
		case '\u2010':
			n.text = append(n.text, '-')
		case '\u2044', '\u2215':
			n.text = append(n.text, '/')
		case '♯':
			n.text = append(n.text, '#')
		case utf8.RuneError:
			n.text = append(n.text, ' ')
		default:
			if r > 0x0600 && unicode.IsDigit(r) {
				n.text = append(n.text, byte('0'+digitOf(r)))
			} else {
				n.text = append(n.text, n.run[i:i+size]...)
			}
		}
		i += size
	}
}
