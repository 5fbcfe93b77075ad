package recall

import (
	"sync"

	"github.com/kljensen/snowball/english"
)

// formerAnalysis is version 1 of the analysis, that of indexes which are not rebuilt yet: English stems of words that
// are not stop words. It caches stems up to a limit and is safe for concurrent use.
type formerAnalysis struct {
	mu    sync.RWMutex
	stems map[string]string
}

// terms returns the terms of a text in order. A text of only stop words yields those; a text without a word yields its
// symbols.
func (a *formerAnalysis) terms(text string) []string {
	terms := make([]string, 0, len(text)/8+1)
	stopped := false
	formerWords(text, func(word []byte) {
		term := a.stem(word)
		if term == "" {
			stopped = true
			return
		}
		terms = append(terms, term)
	})
	if len(terms) > 0 {
		return terms
	}
	if !stopped {
		return symbols(text)
	}
	formerWords(text, func(word []byte) { terms = append(terms, string(word)) })
	return terms
}

// stem returns the term of a word from the cache, "" for a stop word.
func (a *formerAnalysis) stem(spelled []byte) string {
	a.mu.RLock()
	term, known := a.stems[string(spelled)]
	a.mu.RUnlock()
	if known {
		return term
	}
	word := string(spelled)
	term = formerTermOf(word)
	a.mu.Lock()
	if len(a.stems) >= wordsKept {
		clear(a.stems)
	}
	a.stems[word] = term
	a.mu.Unlock()
	return term
}

// formerTermOf returns the term of a word, "" for a stop word.
func formerTermOf(word string) string {
	if _, stop := formerStopWords[word]; stop {
		return ""
	}
	if base, irregular := formerIrregular[word]; irregular {
		return formerTermOf(base)
	}
	return formerStemOf(word)
}

// formerStemOf returns the English stem of a lower-case word (Porter2). A word with anything but the letters a to z, or
// of one or two letters, is its own stem.
func formerStemOf(word string) string {
	if len(word) <= 2 {
		return word
	}
	for i := range len(word) {
		if word[i] < 'a' || word[i] > 'z' {
			return word
		}
	}
	return english.Stem(word, true)
}
