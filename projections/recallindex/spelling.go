package recallindex

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// SpellingQuery asks for other spellings of words among the texts and labels of the sources of a project.
type SpellingQuery struct {
	Project uuid.UUID
	// Audiences, From and To say which documents are read, as in Query.
	Audiences []uuid.UUID
	From, To  *time.Time
	// Words are at most MaxSpellingWords; later ones get no spellings.
	Words []SpellingWord
	// Size is the most spellings of a word.
	Size int
}

// SpellingWord is a word as an analysis makes it, and how many edits a spelling may differ by: 1 or 2.
type SpellingWord struct {
	Text  string
	Edits int
}

const (
	// MaxSpellingWords is the most words of one query.
	MaxSpellingWords = 4
	maxEdits         = 2
	// leastSpelling is the fewest code points of a spelling.
	leastSpelling = 4
)

// AllowedEdits returns the edits of a word within the bounds.
func (w SpellingWord) AllowedEdits() int { return min(w.Edits, maxEdits) }

// Spelling is a word of an index that may be another spelling of a word.
type Spelling struct {
	Text string
	// Distance is the number of edits, Frequency how many texts and labels of the project hold it.
	Distance, Frequency int
}

// NewSpelling compares a term with a word. ok is false if the term is not a spelling of it: a word of at
// least four letters, and nothing but letters, that differs by at most the edits of the word.
func NewSpelling(term string, of SpellingWord) (s Spelling, ok bool) {
	if utf8.RuneCountInString(term) < leastSpelling {
		return s, false
	}
	for _, r := range term {
		if !unicode.IsLetter(r) && !unicode.IsMark(r) {
			return s, false
		}
	}
	s = Spelling{Text: term, Distance: distance(term, of.Text)}
	return s, s.Distance > 0 && s.Distance <= of.AllowedEdits()
}

// SortSpellings sorts the nearest first, then the more frequent, then by bytes. Frequencies are rounded to
// powers of two, so that texts that the viewer may not read have almost no influence.
func SortSpellings(list []Spelling) {
	slices.SortFunc(list, func(a, b Spelling) int {
		return cmp.Or(cmp.Compare(a.Distance, b.Distance), cmp.Compare(rounded(b.Frequency), rounded(a.Frequency)),
			strings.Compare(a.Text, b.Text))
	})
}

func rounded(frequency int) int { return int(math.Round(math.Log2(float64(max(frequency, 1))))) }

// distance is the optimal string alignment distance in code points: how many are inserted, deleted,
// replaced, or swapped with their neighbour, where none is changed twice.
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	before, last, row := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(s); i++ {
		row[0] = i
		for j := 1; j <= len(t); j++ {
			replaced := last[j-1]
			if s[i-1] != t[j-1] {
				replaced++
			}
			row[j] = min(last[j]+1, row[j-1]+1, replaced)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(t)]
}
