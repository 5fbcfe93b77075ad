package recall

import "strings"

// Version is that of the analysis. Terms of two versions do not compare.
func (a *Analyzer) Version() int { return a.version }

// NewFormerAnalyzer makes an analyzer of version 1.
func NewFormerAnalyzer() *Analyzer { return &Analyzer{stems: make(map[string]string), version: 1} }

// LanguageMarker returns the term that each passage with stems of a language has, for a stem.
func LanguageMarker(term string) (marker string, ok bool) {
	if !strings.HasPrefix(term, "~") {
		return "", false
	}
	marker, _, ok = strings.Cut(term, ":")
	return marker, ok
}
