package recall

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Statement is what shows whether one text states what has become of another: "I quit football for basketball" states
// it of "I play football".
type Statement struct {
	// Terms are those of a short text that is no question, sorted and each once; nil for others.
	Terms []string
	// Words are the question's own words as shares of their weight, in their order, 0 for those that its best passage
	// lacks.
	Words []float64
	// Changes reports that this passage has ChangeEvidence.
	Changes bool
	// HintsChange reports that a short text has one of the words that HintsChange knows.
	HintsChange bool
	// Answers reports that it has the kind of answer that the question asks for.
	Answers bool
	Score   float64
	// Rank is 0 for the best candidate.
	Rank int
}

// A later text updates an earlier one
//   - if it has a third of the terms of the earlier one, and states that something changed or both have at most
//     briefTerms terms; or
//   - if it states that something changed, has updateWords of the question's words that the earlier one has,
//     which are updateAsked of all its words, and has at least updateScore of the earlier one's score; or
//   - if both are among the first updateRanks candidates and have at most shortTerms terms, or the earlier one at most
//     factTerms and the later one newsTerms, it has at least updateLeast of the earlier one's score, and it states or
//     hints that something changed, or both share a term and have the kind of answer that the question asks for: "I
//     became a vegetarian" has no word of "I eat meat", and "My flat costs 900 euros from May on" none of change.
const (
	updateTerms = 3
	briefTerms  = 8
	updateWords = 0.75
	updateAsked = 0.5
	updateScore = 0.6
	updateRanks = 5
	shortTerms  = 12
	factTerms   = 6
	newsTerms   = 24
	updateLeast = 0.4
)

// UpdatedBy reports whether a later text of the same author probably states what is current of the same matter.
func (s *Statement) UpdatedBy(later *Statement) bool {
	if (later.Changes || atMost(s, briefTerms, later, briefTerms)) && s.termsIn(later) {
		return true
	}
	if later.Changes && later.Score >= updateScore*s.Score && s.wordsIn(later) {
		return true
	}
	if max(s.Rank, later.Rank) >= updateRanks || later.Score < updateLeast*s.Score {
		return false
	}
	if !atMost(s, shortTerms, later, shortTerms) && !atMost(s, factTerms, later, newsTerms) {
		return false
	}
	return later.Changes || later.HintsChange || s.Answers && later.Answers && s.common(later) > 0
}

// changeHints are words that state a change in a short text about what is asked, and often none in other texts. The
// index does not store whether a passage has one.
var changeHints = wordSet(`another beat bought broke bumped climbed divorced doubled fell fewer finally fired given
	gone got handed hired jumped landed lately married merged outgrown passed ported promoted pushed renamed resigned
	retired rewrote rose settled shifted shrank signed since slipped swapped taken traded trimmed tripled went`)

// HintsChange reports whether a text has a word that may state a change.
func HintsChange(text string) bool {
	for i := 0; i < len(text); {
		end := wordEnd(text, i)
		if end == i {
			_, size := utf8.DecodeRuneInString(text[i:])
			i += size
			continue
		}
		if _, hints := changeHints[strings.ToLower(text[i:end])]; hints {
			return true
		}
		i = end
	}
	return false
}

// atMost reports whether a has at most mostA terms and b at most mostB, and both have terms.
func atMost(a *Statement, mostA int, b *Statement, mostB int) bool {
	return a.Terms != nil && b.Terms != nil && len(a.Terms) <= mostA && len(b.Terms) <= mostB
}

// termsIn reports whether another statement has enough of the terms.
func (s *Statement) termsIn(other *Statement) bool {
	same := s.common(other)
	return same > 0 && updateTerms*same >= len(s.Terms)
}

// common returns how many terms both have.
func (s *Statement) common(other *Statement) (same int) {
	rest := other.Terms
	for _, term := range s.Terms {
		i, found := slices.BinarySearch(rest, term)
		if rest = rest[i:]; found {
			same++
		}
	}
	return same
}

// wordsIn reports whether another statement has enough of the words of the question.
func (s *Statement) wordsIn(other *Statement) bool {
	sum, same := 0.0, 0.0
	for i, weight := range s.Words {
		sum += weight
		if other.Words[i] > 0 {
			same += weight
		}
	}
	return same >= updateAsked && same >= updateWords*sum
}
