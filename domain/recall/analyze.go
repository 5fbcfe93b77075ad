package recall

import "strings"

// Analyzer turns texts and queries into terms. It is safe for concurrent use.
type Analyzer struct {
	version int
	former  *formerAnalysis
}

// Versions of the analysis. An index holds terms of one of them, and is asked with its own.
const (
	formerVersion  = 1
	currentVersion = 2
)

const (
	// termBytes is the most bytes of a term; the rest of a longer word is ignored.
	termBytes = 64
	// wordsKept is how many words an Analyzer caches before it clears the cache: about 10 MiB.
	wordsKept = 1 << 16
)

// NewAnalyzer makes an analyzer of the current version, with an empty cache.
func NewAnalyzer() *Analyzer {
	return &Analyzer{version: currentVersion, former: &formerAnalysis{stems: make(map[string]string)}}
}

// NewFormerAnalyzer makes an analyzer of the version before, for an index that is not rebuilt yet.
func NewFormerAnalyzer() *Analyzer {
	return &Analyzer{version: formerVersion, former: &formerAnalysis{stems: make(map[string]string)}}
}

// Version is the version of the analysis: an index of another version must be built again.
func (a *Analyzer) Version() int { return a.version }

// Terms returns the terms by which an index finds a text, in its order, with repetitions.
func (a *Analyzer) Terms(text string) []string { return a.former.terms(text) }

// Words returns the words of a text in its order, with repetitions: folded, without parts of words and without stop
// words. Text of only stop words yields those.
func (a *Analyzer) Words(text string) []string { return a.former.terms(text) }

// Stems returns one term for each word of Words: its stem, or the word if it has none. Texts with the same stems say
// the same in other forms.
func (a *Analyzer) Stems(text string) []string { return a.former.terms(text) }

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

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
