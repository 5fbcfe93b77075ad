package recall

import (
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
