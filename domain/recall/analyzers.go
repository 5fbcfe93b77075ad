package recall

// Analysis is a version of the analysis, by what it has of its own.
type Analysis struct {
	// Version is its number. Raise the current one with every change of the terms of a text: an index holds terms of
	// one version, and is asked with that.
	Version int
	// Word returns what a folded word is in the version; nil leaves it.
	Word func(word string) string
}

// current is the version of new indexes.
var current = Analysis{Version: 3}

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
