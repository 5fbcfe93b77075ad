package recall

import (
	"sync"

	"github.com/kljensen/snowball/english"
)

// Analyzer turns text into terms: English stems of words that are not stop words. It caches stems
// up to a limit. It is safe for concurrent use.
type Analyzer struct {
	mu      sync.RWMutex
	stems   map[string]string
	version int
}

// stemsKept is how many stems an Analyzer caches before it clears the cache: about 10 MiB.
const stemsKept = 1 << 16

// NewAnalyzer makes an analyzer with an empty cache.
func NewAnalyzer() *Analyzer { return &Analyzer{stems: make(map[string]string), version: 2} }

// Terms returns the terms of a text in order. A text of only stop words yields those; a text
// without a word yields its symbols, so that all visible text has terms.
func (a *Analyzer) Terms(text string) []string {
	terms := make([]string, 0, len(text)/8+1)
	stopped := false
	words(text, func(word []byte) {
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
	words(text, func(word []byte) { terms = append(terms, string(word)) })
	return terms
}

// stem returns the term of a word from the cache, "" for a stop word.
func (a *Analyzer) stem(spelled []byte) string {
	a.mu.RLock()
	term, known := a.stems[string(spelled)]
	a.mu.RUnlock()
	if known {
		return term
	}
	word := string(spelled)
	term = termOf(word)
	a.mu.Lock()
	if len(a.stems) >= stemsKept {
		clear(a.stems)
	}
	a.stems[word] = term
	a.mu.Unlock()
	return term
}

// termOf returns the term of a word, "" for a stop word.
func termOf(word string) string {
	if _, stop := stopWords[word]; stop {
		return ""
	}
	if base, irregular := irregularForms[word]; irregular {
		return termOf(base)
	}
	return stemOf(word)
}

// stemOf returns the English stem of a lower-case word (Porter2). A word with anything but the
// letters a to z, or of one or two letters, is its own stem.
func stemOf(word string) string {
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
