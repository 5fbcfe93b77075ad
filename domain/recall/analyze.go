package recall

import (
	"strings"
	"sync"
)

// Analyzer turns texts and queries into terms. It is safe for concurrent use.
type Analyzer struct {
	words vocabulary
}

const (
	// termBytes is the most bytes of a term; the rest of a longer word is ignored.
	termBytes = 64
	// wordsKept is how many words an Analyzer caches before it clears the cache: about 20 MiB.
	wordsKept = 1 << 16
	// languageBytes is how many bytes of a text decide its language.
	languageBytes = 32 << 10
)

// NewAnalyzer makes an analyzer of the current version, with an empty cache.
func NewAnalyzer() *Analyzer { return newAnalyzer(current) }

// Shared returns the analyzer of the current version that the parts of a process share, since its cache is large.
var Shared = sync.OnceValue(NewAnalyzer)

func newAnalyzer(is Analysis) *Analyzer {
	return &Analyzer{words: vocabulary{version: is, entries: make(map[string]*entry)}}
}

// Version is the version of the analysis: an index of another version must be built again.
func (a *Analyzer) Version() int { return a.words.version.Version }

// Terms returns the terms by which an index finds a text, in its order, with repetitions: its words and their parts,
// their stems in its language, and once the marker of each language of a stem. A text without a word has its symbols,
// so that all visible text has terms.
func (a *Analyzer) Terms(text string) []string {
	p := a.read(text)
	defer p.release()
	return p.terms(p.evidence.text())
}

// Words returns the words of a text in its order, with repetitions: folded, without parts of words and, if its language
// is certain, without stop words. A text of only stop words yields those.
func (a *Analyzer) Words(text string) []string {
	p := a.read(text)
	defer p.release()
	speaks := p.evidence.question()
	return p.content(func(i *item, all bool) string {
		if i.kind > aPair || !all && p.stops(i, speaks) {
			return ""
		}
		return i.word
	})
}

// Stems returns one term for each word of a text that is no stop word of its most likely language: its stem or, if it
// has none, the word; and what joined words and numbers are as a whole. Texts with the same stems say the same in other
// forms. A text of only stop words yields those.
func (a *Analyzer) Stems(text string) []string {
	p := a.read(text)
	defer p.release()
	return p.stems()
}

// stems is Stems of the text.
func (p *reading) stems() []string {
	speaks := p.evidence.question()
	return p.content(func(i *item, all bool) string {
		l, _ := speaks.of(i.alphabet)
		switch {
		case i.kind > aPair && i.kind != aForm, !all && i.stops.has(l):
			return ""
		case l == languageCount, i.short:
			return i.word
		default:
			return i.in(l)[0]
		}
	})
}

// content returns what of gives for each token of a text but "": first without stop words or, if nothing is left, all.
func (p *reading) content(of func(i *item, all bool) string) []string {
	terms := make([]string, 0, len(p.items))
	for _, all := range []bool{false, true} {
		for i := range p.items {
			if term := of(&p.items[i], all); term != "" {
				terms = append(terms, term)
			}
		}
		if len(terms) > 0 {
			return terms
		}
	}
	return symbols(string(p.scanner.text))
}

// LanguageMarker returns the marker of the language of a stem: each passage that has a stem of a language has its
// marker once. ok is false for any other term.
func LanguageMarker(term string) (marker string, ok bool) {
	if term == "" || term[0] != stemMark {
		return "", false
	}
	if marker, _, ok = strings.Cut(term, ":"); !ok {
		return "", false
	}
	return marker, true
}

// stemMark begins stems and markers. No word contains it.
const stemMark = '~'

// item is a token of a text with its entry.
type item struct {
	*entry
	kind tokenKind
	// capital reports an upper-case first letter within a sentence, capitals one inside the word, initial that it begins a
	// sentence.
	capital, capitals, initial bool
}

// reading are the tokens of a text, and what shows its language.
type reading struct {
	scanner  scanner
	items    []item
	evidence languageEvidence
	// words are the words of letters that do not begin a sentence, titled those of them with an upper-case first letter.
	words, titled int
}

var readings = sync.Pool{New: func() any { return new(reading) }}

// read splits a text. The caller releases the reading.
func (a *Analyzer) read(text string) *reading {
	p := readings.Get().(*reading)
	p.items, p.evidence, p.words, p.titled = p.items[:0], languageEvidence{}, 0, 0
	p.scanner.scan(text, func(t token) {
		e := a.words.lookUp(&t)
		p.items = append(p.items, item{
			entry: e, kind: t.kind, capital: t.capital && !t.initial, capitals: t.capitals, initial: t.initial,
		})
		if t.kind == aWord && e.alphabet != otherAlphabet && !t.initial {
			p.words++
			if t.capital {
				p.titled++
			}
		}
	})
	for i := range p.items {
		if item := &p.items[i]; item.kind == aWord && item.stops|item.typical != 0 && !p.name(item) {
			p.evidence.add(item.entry)
		}
	}
	return p
}

// name reports whether a word is written as a name: with an upper-case letter among words without.
func (p *reading) name(i *item) bool {
	return i.capital && len(i.word) > 1 && p.titled < p.words && 2*p.titled <= p.words+1
}

// release returns the buffers of a reading, unless a long text made them large.
func (p *reading) release() {
	if cap(p.items) <= 1<<14 {
		clear(p.items)
		readings.Put(p)
	}
}

// terms returns the index terms of the reading of a text in some languages.
func (p *reading) terms(speaks spoken) []string {
	if len(p.items) == 0 {
		return symbols(string(p.scanner.text))
	}
	var marked languages
	terms := make([]string, 0, 2*len(p.items)+2)
	for i := range p.items {
		item := &p.items[i]
		terms = append(terms, item.word)
		l, _ := speaks.of(item.alphabet)
		if l == languageCount || item.short || item.stops.has(l) { // no question asks for the stem of a stop word
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
