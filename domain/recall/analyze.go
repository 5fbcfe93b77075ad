package recall

import "sync"

// Analyzer turns text into terms: English stems of words that are no stop words. It remembers the stems of words it has
// met, up to a limit; it is safe for concurrent use.
type Analyzer struct {
	mu    sync.RWMutex
	stems map[string]string
}

// stemsKept is how many stems an Analyzer remembers before it forgets them all: about 10 MiB.
const stemsKept = 1 << 16

// NewAnalyzer makes an analyzer that has met no word yet.
func NewAnalyzer() *Analyzer { return &Analyzer{stems: make(map[string]string)} }

// Terms are the terms of a text in its order. A text of nothing but stop words is analysed with them, and one without
// any word is its symbols, so that nothing visible is without terms.
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

// stem is the term of a word, "" for a stop word.
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

// termOf is the term of a word, "" for a stop word.
func termOf(word string) string {
	if _, stop := stopWords[word]; stop {
		return ""
	}
	if base, irregular := irregularForms[word]; irregular {
		return termOf(base)
	}
	return stem(word)
}
