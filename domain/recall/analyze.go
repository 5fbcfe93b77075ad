package recall

import (
	"strings"
	"sync"
)

// Analyzer turns texts and queries into terms. It is safe for concurrent use.
type Analyzer struct {
	words vocabulary
	// former is the analysis of the version before; nil in the current one.
	former *formerAnalysis
}

// Versions of the analysis. An index holds terms of one of them, and is asked with its own.
const (
	formerVersion  = 1
	currentVersion = 2
)

const (
	// termBytes is the most bytes of a term; the rest of a longer word is ignored.
	termBytes = 64
	// wordsKept is how many words an Analyzer caches before it clears the cache: about 20 MiB.
	wordsKept = 1 << 16
	// languageBytes is how many bytes of a text decide its language.
	languageBytes = 32 << 10
)

// NewAnalyzer makes an analyzer of the current version, with an empty cache.
func NewAnalyzer() *Analyzer {
	return &Analyzer{words: vocabulary{entries: make(map[string]*entry)}}
}

// NewFormerAnalyzer makes an analyzer of the version before, for an index that is not rebuilt yet.
func NewFormerAnalyzer() *Analyzer {
	return &Analyzer{former: &formerAnalysis{stems: make(map[string]string)}}
}

// Version is the version of the analysis: an index of another version must be built again.
func (a *Analyzer) Version() int {
	if a.former != nil {
		return formerVersion
	}
	return currentVersion
}

// Terms returns the terms by which an index finds a text, in its order, with repetitions: its words and their parts,
// their stems in its language, and once the marker of each language of a stem. A text without a word has its symbols, so
// that all visible text has terms.
func (a *Analyzer) Terms(text string) []string {
	if a.former != nil {
		return a.former.terms(text)
	}
	p := a.read(text)
	defer p.release()
	return p.terms(text, p.evidence.text())
}

// Words returns the words of a text in its order, with repetitions: folded, without parts of words and without stop
// words. A text of only stop words yields those.
func (a *Analyzer) Words(text string) []string {
	if a.former != nil {
		return a.former.terms(text)
	}
	return a.content(text, func(e *entry, _ spoken) string { return e.word })
}

// Stems returns one term for each word of Words: its stem, or the word if it has none. Texts with the same stems say
// the same in other forms.
func (a *Analyzer) Stems(text string) []string {
	if a.former != nil {
		return a.former.terms(text)
	}
	return a.content(text, func(e *entry, s spoken) string {
		if l, _ := s.of(e.alphabet); l != languageCount {
			return e.in(l)[0]
		}
		return e.word
	})
}

// content returns what of gives for each word of a text that is no stop word.
func (a *Analyzer) content(text string, of func(*entry, spoken) string) []string {
	p := a.read(text)
	defer p.release()
	speaks := p.evidence.question()
	terms := make([]string, 0, len(p.items))
	for _, keepStops := range []bool{false, true} {
		for i := range p.items {
			item := &p.items[i]
			if l, certain := speaks.of(item.alphabet); item.kind <= aPart && !item.part() &&
				(keepStops || !certain || !item.stops.has(l)) {
				terms = append(terms, of(item.entry, speaks))
			}
		}
		if len(terms) > 0 {
			return terms
		}
	}
	return symbols(text)
}

// LanguageMarker returns the marker of the language of a stem: each passage that has a stem of a language has its
// marker once. ok is false for any other term.
func LanguageMarker(term string) (marker string, ok bool) {
	if term == "" || term[0] != stemMark {
		return "", false
	}
	marker, _, ok = strings.Cut(term, ":")
	return marker, ok
}

// stemMark begins stems and markers. No word contains it.
const stemMark = '~'

// item is a token of a text with its entry.
type item struct {
	*entry
	kind tokenKind
	// capital reports an upper-case first letter within a sentence, capitals one inside the word.
	capital, capitals bool
}

// part reports a part of a word that is no pair of characters.
func (i *item) part() bool { return i.kind == aPart && i.alphabet != otherAlphabet }

// reading are the tokens of a text, and what shows its language.
type reading struct {
	scanner  scanner
	items    []item
	evidence languageEvidence
	// words are the words of letters, titled those with an upper-case first letter.
	words, titled int
}

var readings = sync.Pool{New: func() any { return new(reading) }}

// read splits a text. The caller releases the reading.
func (a *Analyzer) read(text string) *reading {
	p := readings.Get().(*reading)
	p.items, p.evidence, p.words, p.titled = p.items[:0], languageEvidence{}, 0, 0
	p.scanner.scan(text, func(t token) {
		e := a.words.lookUp(&t)
		p.items = append(p.items, item{entry: e, kind: t.kind, capital: t.capital && !t.initial, capitals: t.capitals})
		if t.kind != aWord {
			return
		}
		p.evidence.add(e)
		if e.alphabet != otherAlphabet {
			p.words++
			if t.capital {
				p.titled++
			}
		}
	})
	return p
}

// release returns the buffers of a reading, unless a long text made them large.
func (p *reading) release() {
	if cap(p.items) <= 1<<14 {
		clear(p.items)
		readings.Put(p)
	}
}

// terms returns the index terms of the reading of a text in some languages.
func (p *reading) terms(text string, speaks spoken) []string {
	if len(p.items) == 0 {
		return symbols(text)
	}
	var marked languages
	terms := make([]string, 0, 2*len(p.items)+2)
	for i := range p.items {
		item := &p.items[i]
		terms = append(terms, item.word)
		l, _ := speaks.of(item.alphabet)
		if l == languageCount || item.kind == aForm || item.stops.has(l) { // no question asks for the stem of a stop word
			continue
		}
		terms = append(terms, item.in(l)...)
		marked |= 1 << l
	}
	for l := range languageCount {
		if marked.has(l) {
			terms = append(terms, l.marker())
		}
	}
	return terms
}
