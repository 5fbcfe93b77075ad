package recall

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// Words are written together, with a hyphen or a dot, or apart: "notebook", "note-book", "note book". A text has no
// postings for the other ways; a question looks for them.
const (
	// mostJoined is how many neighbouring words of a question are also searched for as one.
	mostJoined = 8
	// leastJoined is the fewest letters of a word of two parts, leastPart those of a part.
	leastJoined = 5
	leastPart   = 2
	// mostSplit is the most letters of a word that is looked for in two parts, and splitsOfWord how many ways count.
	mostSplit    = 24
	splitsOfWord = 2
)

// joinedAsked returns the words that neighbouring words of a query are together, with their English stem, as other
// spellings of the first of them.
func (a *Analyzer) joinedAsked(p *reading, chosen []*item) (terms []Term) {
	places := make(map[string]int, len(chosen))
	for n, i := range chosen {
		places[i.word] = n
	}
	var before *item
	joined := 0
	for n := range p.items {
		i := &p.items[n]
		if i.kind != aWord {
			continue
		}
		place, asked := 0, false
		if before != nil {
			place, asked = places[before.word]
		}
		_, isChosen := places[i.word]
		canJoin := isChosen && (i.alphabet == latin || i.alphabet == cyrillic) && !i.short
		if word := ""; asked && canJoin && joined < mostJoined {
			if word = before.word + i.word; utf8.RuneCountInString(word) >= leastJoined && len(word) <= termBytes {
				joined++
				terms = append(terms, Term{Text: word, Kind: Spelling, For: place, Share: spellingShare})
				if i.alphabet == latin {
					stem := newEntry(word, word).in(inEnglish)[0]
					terms = append(terms, Term{Text: stem, Kind: Spelling, For: place, Share: spellingShare})
				}
			}
		}
		if before = nil; canJoin {
			before = i
		}
	}
	return terms
}

// SplitWord is a word of a question in two parts. First and Second are the indexes of their terms once they are added.
type SplitWord struct {
	Word          int
	Parts         [2]string
	First, Second int
}

// Splits returns the ways to split a word of a question: letters alone, of a script with case.
func (t Term) Splits() (parts [][2]string) {
	letters := 0
	for _, r := range t.Text {
		if !unicode.In(r, unicode.Latin, unicode.Cyrillic, unicode.Greek) {
			return nil
		}
		letters++
	}
	if t.Kind != Whole || letters < leastJoined || letters > mostSplit {
		return nil
	}
	n := 0
	for at := range t.Text {
		if n >= leastPart && letters-n >= leastPart {
			parts = append(parts, [2]string{t.Text[:at], t.Text[at:]})
		}
		n++
	}
	return parts
}

// AddSplits adds the parts of words as other spellings of them, at most splitsOfWord ways of one. A part that is a term
// of the question already is none. It reports whether it added any.
func (q *Question) AddSplits(splits []SplitWord) (added bool) {
	ways := map[int]int{}
	for _, s := range splits {
		known := slices.ContainsFunc(q.Terms, func(t Term) bool { return t.Text == s.Parts[0] || t.Text == s.Parts[1] })
		if known || s.Parts[0] == s.Parts[1] || ways[s.Word] == splitsOfWord {
			continue
		}
		ways[s.Word]++
		s.First, s.Second = len(q.Terms), len(q.Terms)+1
		for _, part := range s.Parts {
			q.Terms = append(q.Terms, Term{Text: part, Kind: Spelling, For: s.Word, Share: spellingShare})
		}
		q.Splits = append(q.Splits, s)
		added = true
	}
	return added
}

// HasSplit reports whether counts have a part of a word.
func (q *Question) HasSplit(counts []Count) bool {
	return slices.ContainsFunc(q.Splits, func(s SplitWord) bool {
		return counts[s.First] != (Count{}) || counts[s.Second] != (Count{})
	})
}

// KeepSplits clears the counts of the parts of words for which keep does not hold, and reports whether a count is left.
// Keep is not called if only one part is there.
func (q *Question) KeepSplits(counts []Count, keep func(SplitWord) bool) (some bool) {
	for _, s := range q.Splits {
		if counts[s.First].Text == 0 || counts[s.Second].Text == 0 || !keep(s) {
			counts[s.First], counts[s.Second] = Count{}, Count{}
		}
	}
	return slices.ContainsFunc(counts, func(c Count) bool { return c != (Count{}) })
}

// IsTogether reports whether a text has the parts of a word next to each other.
func (a *Analyzer) IsTogether(text string, parts [2]string) bool {
	p := a.read(text)
	defer p.release()
	before := ""
	for i := range p.items {
		if p.items[i].kind != aWord {
			continue
		}
		if before == parts[0] && p.items[i].word == parts[1] {
			return true
		}
		before = p.items[i].word
	}
	return false
}
