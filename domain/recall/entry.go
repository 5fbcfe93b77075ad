package recall

import (
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	snowball "github.com/blevesearch/snowballstem"

	"github.com/annals-project/annals/domain/lexicon"
)

// entry is what an Analyzer knows of a word: its language has to be known for its stems.
type entry struct {
	word string
	// spelled is the word with its marks, as stemmers expect it.
	spelled string
	// alphabet is that of a word of letters alone, if languages with stems use it. short reports a word of one letter,
	// which has no stem.
	alphabet alphabet
	short    bool
	// stops are the languages in which it is a stop word, number is that of the stop word; typical are the languages that
	// its letters speak for.
	stops   languages
	number  int
	typical languages
	stems   atomic.Pointer[stemsOf]
}

// stemsOf are the stems of a word in one language, before those in others.
type stemsOf struct {
	language language
	terms    []string
	next     *stemsOf
}

// vocabulary caches entries of a version of the analysis up to a limit. It is safe for concurrent use.
type vocabulary struct {
	version Analysis
	mu      sync.RWMutex
	entries map[string]*entry
}

// lookUp returns the entry of a token.
func (v *vocabulary) lookUp(t *token) *entry {
	key := t.text
	if len(t.spelled) > 0 {
		key = t.spelled
	}
	v.mu.RLock()
	e := v.entries[string(key)]
	v.mu.RUnlock()
	if e != nil {
		return e
	}
	e = newEntry(string(t.text), string(key))
	if v.version.Word != nil {
		e.word = v.version.Word(e.word)
	}
	v.mu.Lock()
	if len(v.entries) >= wordsKept {
		clear(v.entries)
	}
	v.entries[e.spelled] = e
	v.mu.Unlock()
	return e
}

func newEntry(word, spelled string) *entry {
	if spelled == word {
		spelled = word // one copy
	}
	e := &entry{word: word, spelled: spelled, alphabet: alphabetOf(word)}
	e.short = utf8.RuneCountInString(word) < 2 && e.alphabet != korean
	if stop, ok := stopWords[word]; ok {
		e.stops, e.number = stop.in, stop.number
	}
	for _, r := range spelled {
		if r >= utf8.RuneSelf {
			e.typical |= typicalLetters[r]
		}
	}
	return e
}

// alphabetOf returns the alphabet of a folded word of letters and nothing else.
func alphabetOf(word string) alphabet {
	of := otherAlphabet
	for i, r := range word {
		a := latin
		switch {
		case r >= utf8.RuneSelf:
			a = characterOf(r).alphabet
		case r < 'a' || r > 'z':
			return otherAlphabet
		}
		if i > 0 && a != of {
			return otherAlphabet
		}
		of = a
	}
	return of
}

// in returns the stems of a word in a language, tagged with it.
func (e *entry) in(l language) []string {
	first := e.stems.Load()
	for s := first; s != nil; s = s.next {
		if s.language == l {
			return s.terms
		}
	}
	made := &stemsOf{language: l, terms: e.makeStems(l), next: first}
	e.stems.CompareAndSwap(first, made) // if another was faster, the next call finds or makes them
	return made.terms
}

func (e *entry) makeStems(l language) []string {
	if l == inKorean {
		return prefixes(e.word)
	}
	if l == inEnglish {
		return englishStems(e.word)
	}
	return []string{tagged(l, stemIn(l, e.spelled))}
}

// englishStems returns the stem of the base of an irregular form, and that of the form itself if a rule shortens it:
// "lives" is of "life" and of "live". Other words have one stem.
func englishStems(word string) []string {
	own := stemIn(inEnglish, word)
	base, irregular := lexicon.Base(word)
	if !irregular {
		return []string{tagged(inEnglish, own)}
	}
	stem := stemIn(inEnglish, base)
	terms := []string{tagged(inEnglish, stem)}
	if own != word && own != stem {
		terms = append(terms, tagged(inEnglish, own))
	}
	return terms
}

func stemIn(l language, word string) string {
	env := snowball.NewEnv(word)
	languageInfo[l].stem(env)
	return foldStem(env.Current())
}

// tagged returns a stem as the term of a language.
func tagged(l language, stem string) string {
	return cut(l.marker()+":"+stem, termBytes)
}

// foldStem drops the marks that a stem still has.
func foldStem(stem string) string {
	plain := true
	for i := range len(stem) {
		plain = plain && stem[i] < utf8.RuneSelf
	}
	if plain {
		return stem
	}
	var folded strings.Builder
	for _, r := range stem {
		if r < utf8.RuneSelf {
			folded.WriteByte(byte(r))
		} else {
			folded.WriteString(characterOf(r).text)
		}
	}
	return folded.String()
}

// mostSyllables is how many syllables the longest prefix of a Korean word has, besides the word itself.
const mostSyllables = 8

// prefixes returns the beginnings of a Korean word, the word itself first: what follows a noun is part of its word.
func prefixes(word string) []string {
	terms := []string{tagged(inKorean, word)}
	syllables := 0
	for i := range word {
		if i == 0 {
			continue
		}
		if syllables++; syllables > mostSyllables {
			break
		}
		terms = append(terms, tagged(inKorean, word[:i]))
	}
	return terms
}
