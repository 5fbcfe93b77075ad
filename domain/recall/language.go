package recall

import (
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	snowball "github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/dutch"
	"github.com/blevesearch/snowballstem/english"
	"github.com/blevesearch/snowballstem/french"
	"github.com/blevesearch/snowballstem/german"
	"github.com/blevesearch/snowballstem/italian"
	"github.com/blevesearch/snowballstem/portuguese"
	"github.com/blevesearch/snowballstem/russian"
	"github.com/blevesearch/snowballstem/spanish"
	"github.com/blevesearch/snowballstem/swedish"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/annals-project/annals/domain/lexicon"
)

// language is a language with stems. Those of the Latin alphabet are first.
type language uint8

const (
	inEnglish language = iota
	inGerman
	inFrench
	inSpanish
	inItalian
	inPortuguese
	inDutch
	inSwedish
	inRussian
	inKorean
	languageCount
	latinCount = inRussian
)

// languageInfo are the code of a language, by which its stems are tagged, and its stemmer.
var languageInfo = [languageCount]struct {
	code string
	stem func(*snowball.Env) bool
}{
	inEnglish: {"en", english.Stem}, inGerman: {"de", german.Stem}, inFrench: {"fr", french.Stem},
	inSpanish: {"es", spanish.Stem}, inItalian: {"it", italian.Stem}, inPortuguese: {"pt", portuguese.Stem},
	inDutch: {"nl", dutch.Stem}, inSwedish: {"sv", swedish.Stem}, inRussian: {"ru", russian.Stem}, inKorean: {code: "ko"},
}

// marker is the term of every passage with stems of a language.
func (l language) marker() string { return string(stemMark) + languageInfo[l].code }

// languages is a set of languages.
type languages uint16

func (l languages) has(one language) bool { return l>>one&1 != 0 }

func setOf(list ...language) (set languages) {
	for _, l := range list {
		set |= 1 << l
	}
	return set
}

// stopWord is a folded word and the languages in whose stop list it is.
type stopWord struct {
	in     languages
	number int
}

var stopWords = func() map[string]stopWord {
	var n normalizer
	list := make(map[string]stopWord)
	for l := range inKorean {
		for spelled := range lexicon.StopWords(languageInfo[l].code) {
			word := foldedWord(&n, spelled)
			stop, known := list[word]
			if !known {
				stop.number = len(list)
			}
			stop.in |= 1 << l
			list[word] = stop
		}
	}
	return list
}()

// foldedWord folds a word of a list as a text is read: "she'd" is "she", since "shed" is another word.
func foldedWord(n *normalizer, spelled string) string {
	var word []byte
	apostrophe := 0
	for _, r := range string(n.normalize(spelled)) {
		if c := characterOf(r); c.class == letter {
			word = append(word, c.text...)
		} else if r == '\'' {
			apostrophe = len(word)
		}
	}
	if apostrophe > 0 {
		word = withoutContraction(word, apostrophe)
	}
	return string(word)
}

// typicalLetters are letters that only some of the languages use.
var typicalLetters = map[rune]languages{
	'ß': setOf(inGerman), 'ü': setOf(inGerman), 'ä': setOf(inGerman, inSwedish), 'ö': setOf(inGerman, inSwedish),
	'å': setOf(inSwedish), 'ñ': setOf(inSpanish), 'ã': setOf(inPortuguese), 'õ': setOf(inPortuguese),
	'œ': setOf(inFrench), 'ç': setOf(inFrench, inPortuguese),
}

// languageEvidence is what shows the language of a text: function words, each counted once, and typical letters.
type languageEvidence struct {
	seen    [32]uint64
	letters languages
	// count is how many different words each language claims, words how many of them are function words.
	count, words [languageCount]int
	// over counts the words that a language claims and another does not.
	over [latinCount][latinCount]int
}

func (e *languageEvidence) add(x *entry) {
	if x.stops != 0 {
		if word, bit := x.number/64%len(e.seen), uint64(1)<<(x.number%64); e.seen[word]&bit == 0 {
			e.seen[word] |= bit
			e.claim(x.stops)
			for l := range languageCount {
				if x.stops.has(l) {
					e.words[l]++
				}
			}
		}
	}
	if x.typical&^e.letters != 0 {
		e.letters |= x.typical
		e.claim(x.typical)
	}
}

func (e *languageEvidence) claim(by languages) {
	for l := range languageCount {
		if !by.has(l) {
			continue
		}
		e.count[l]++
		if l >= latinCount {
			continue
		}
		for other := range latinCount {
			if !by.has(other) {
				e.over[l][other]++
			}
		}
	}
}

// spoken are the languages of a text: that of its words in the Latin alphabet, and whether that, and Russian for words
// in Cyrillic, are certain.
type spoken struct {
	latin                      language
	latinCertain, russianKnown bool
}

// of returns the language whose stems a word gets; certain reports that its stop words are stop words here.
func (s spoken) of(a alphabet) (l language, certain bool) {
	switch a {
	case latin:
		return s.latin, s.latinCertain
	case cyrillic:
		return inRussian, s.russianKnown
	case korean:
		return inKorean, false
	case otherAlphabet:
	}
	return languageCount, false
}

// text returns the languages of a text. The Latin one is certain if it claims at least two function words, or one and a
// typical letter, that another language does not, and more than twice as many as that claims alone. If it is not, words
// are English.
func (e *languageEvidence) text() spoken {
	s := spoken{latin: inEnglish, russianKnown: e.words[inRussian] >= 2}
	best := inEnglish
	for l := range latinCount {
		if e.count[l] > e.count[best] {
			best = l
		}
	}
	if e.words[best] == 0 {
		return s
	}
	for other := range latinCount {
		if other != best && (e.over[best][other] < 2 || e.over[best][other] <= 2*e.over[other][best]) {
			return s
		}
	}
	s.latin, s.latinCertain = best, true
	return s
}

// question returns the languages of a question. One function word that is English alone is enough if no other language
// claims as many words: most names with an article are of other languages, as Las Vegas or Die Welt.
func (e *languageEvidence) question() spoken {
	s := e.text()
	s.russianKnown = e.words[inRussian] > 0
	if s.latinCertain {
		return s
	}
	for other := inEnglish + 1; other < latinCount; other++ {
		own, others := e.over[inEnglish][other], e.over[other][inEnglish]
		if own < 1 || own < 2*others {
			return s
		}
	}
	s.latinCertain = true
	return s
}

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
