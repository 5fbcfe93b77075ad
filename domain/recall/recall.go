// Package recall turns text into search terms and candidates into a response: analysis, passages,
// ranking, budget and order. All of it is pure.
package recall

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	snowball "github.com/blevesearch/snowballstem"

	"github.com/annals-project/annals/domain/lexicon"
)

// Document is the searchable text of one revision of a data point.
type Document struct {
	Content string
	// Label is "" if there is none; Author is the customer's id of the author or "".
	Label  string
	Author string
}

// Terms are the search terms of one passage, in the order of the text, with repetitions.
type Terms struct {
	Text []string
	// Label holds the terms of label and author, each once.
	Label []string
	// Traits describe the passage.
	Traits Traits
}

// Passages analyses a document: one Terms for each passage that has any, the label's terms with
// each of them. A document without any term yields none.
func (a *Analyzer) Passages(d Document) []Terms {
	var whole *spoken // of the content, once it is known
	terms := func(part string) []string {
		var p *reading
		if len(part) <= StatedText {
			p = a.kept.take(part)
		}
		if p == nil {
			p = a.read(part)
		}
		defer p.release()
		own := p.evidence.text()
		switch {
		case len(part) == len(d.Content) && len(part) <= languageBytes:
			whole = &own
		case !own.latinCertain && len(part) < len(d.Content):
			if whole == nil {
				speaks := a.spoken(cut(d.Content, languageBytes))
				whole = &speaks
			}
			own = *whole
		}
		return p.terms(own)
	}
	var all []Terms
	for span := range Split(d.Content) {
		content := d.Content[span.Start:span.End]
		if text := terms(content); len(text) > 0 {
			all = append(all, Terms{Text: text, Traits: TraitsOf(content)})
		}
	}
	if d.Label == "" && d.Author == "" {
		return all
	}
	label := distinct(terms(d.Label + "\n" + d.Author))
	if len(all) == 0 && len(label) > 0 {
		return []Terms{{Label: label}}
	}
	for i := range all {
		all[i].Label = label
	}
	return all
}

// Label analyses label and author: each term once, in order of appearance.
func (a *Analyzer) Label(label, author string) []string {
	if label == "" && author == "" {
		return nil
	}
	return distinct(a.Terms(label + "\n" + author))
}

// spoken returns the languages of a text.
func (a *Analyzer) spoken(text string) spoken {
	p := a.read(text)
	defer p.release()
	return p.evidence.text()
}

// queryTerms is the most terms of a query; queryBytes is the most bytes of a query that are read.
const (
	queryTerms = 64
	queryBytes = 64 << 10
)

func distinct(terms []string) []string {
	seen := make(map[string]struct{}, len(terms))
	once := terms[:0]
	for _, t := range terms {
		if _, twice := seen[t]; twice {
			continue
		}
		seen[t] = struct{}{}
		once = append(once, t)
	}
	return once
}

// cut shortens a text to at most n bytes, at the beginning of a code point.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && text[n]&0xC0 == 0x80 {
		n--
	}
	return strings.ToValidUTF8(text[:n], "")
}

// symbols returns the visible characters of a text without words, each once and at most a few: the
// whole text may be an emoji.
func symbols(text string) []string {
	const most = 16
	var found []string
	for _, r := range text {
		if unicode.IsSpace(r) || !unicode.IsGraphic(r) || unicode.Is(unicode.Mn, r) {
			continue
		}
		if s := string(r); !slices.Contains(found, s) {
			found = append(found, s)
		}
		if len(found) == most {
			break
		}
	}
	return found
}

// Analyzer turns texts and queries into terms. It is safe for concurrent use.
type Analyzer struct {
	words vocabulary
	kept  keptReadings
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

// Analysis is a version of the analysis, by what it has of its own.
type Analysis struct {
	// Version is its number. Raise the current one with every change of the terms of a text: an index holds terms of
	// one version, and is asked with that.
	Version int
	// Word returns what a folded word is in the version; nil leaves it.
	Word func(word string) string
}

// current is the version of new indexes.
var current = Analysis{Version: 4}

// Analyzers are the analyses that an index may be of, the newest first.
type Analyzers []*Analyzer

// NewAnalyzers makes the analyzer of the current version, and those of earlier ones, if an index of them is asked until
// a new one is built.
func NewAnalyzers(earlier ...Analysis) Analyzers {
	all := Analyzers{Shared()}
	for _, is := range earlier {
		all = append(all, newAnalyzer(is))
	}
	return all
}

// Newest returns the analyzer of a new index.
func (a Analyzers) Newest() *Analyzer { return a[0] }

// Of returns the analyzer of a version, the newest if there is none of that: an index refuses terms of
// another version than its own.
func (a Analyzers) Of(version int) *Analyzer {
	for _, analyzer := range a {
		if analyzer.Version() == version {
			return analyzer
		}
	}
	return a.Newest()
}

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
