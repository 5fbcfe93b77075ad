package recall

// Analyzers are the analyses that an index may be of, the newest first.
type Analyzers []*Analyzer

// NewAnalyzers makes the analyzer of this program and that of the version before, whose index is asked
// until a new one is built.
func NewAnalyzers() Analyzers { return Analyzers{NewAnalyzer(), NewFormerAnalyzer()} }

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
