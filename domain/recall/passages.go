package recall

import (
	"iter"
	"strings"
	"unicode"
)

const (
	// PassagesOfSource is the most passages that take the place of one source.
	PassagesOfSource = 3
	// ShortText is the most code points of a text that is one passage.
	ShortText = passageMax
	// LeastPassage is the least that a passage costs, in tokens, unless it is the last of its text.
	LeastPassage = passageMin / 4
	// excerptMax is the most code points of an excerpt of a passage.
	excerptMax = 300
)

// Numbered returns the passages of a text that have anything to search for, with the numbers that Analyzer.Passages
// gives them, from 0.
func Numbered(text string) iter.Seq2[int, Span] {
	return func(yield func(int, Span) bool) {
		n := 0
		for span := range Split(text) {
			if !isVisible(text[span.Start:span.End]) {
				continue
			}
			if !yield(n, span) {
				return
			}
			n++
		}
	}
}

// IsOnePassage reports whether a text is a single passage, or empty.
func IsOnePassage(text string) bool { return passageEnd(text) == len(text) }

// isVisible reports whether a text has terms.
func isVisible(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsSpace(r) && unicode.IsGraphic(r) && !unicode.Is(unicode.Mn, r)
	})
}

// Excerpt returns the line of a passage that scores best for a question, verbatim, without white space around it: the
// first one if none has a term of it. Of a line with more than 300 code points it is a part.
func (a *Analyzer) Excerpt(passage string, terms []Term, weights Weights) string {
	best, most := "", -1.0
	for start := 0; start < len(passage); {
		end := start + excerptEnd(passage[start:])
		part := strings.TrimSpace(passage[start:end])
		start = end
		if part == "" {
			continue
		}
		found := a.Terms(part)
		if score := weights.Score(Counts(terms, Terms{Text: found}), len(found)); score > most {
			best, most = part, score
		}
	}
	return best
}

// excerptEnd returns where the first part of a passage ends: after its line, else after the last sentence or word that
// fits.
func excerptEnd(text string) int {
	upper := 0
	for n := 0; upper < len(text) && n < excerptMax; n++ {
		upper += width(text[upper:])
	}
	if end := lineEnd(text, 0, upper); end > 0 {
		return end
	}
	if upper == len(text) {
		return upper
	}
	last := 0
	for end := sentenceEnd(text, 0, upper); end > 0; end = sentenceEnd(text, end, upper) {
		last = end
	}
	if last > 0 {
		return last
	}
	if space := strings.LastIndexAny(text[:upper], " \t\r"); space > 0 {
		return space + 1
	}
	return upper
}
