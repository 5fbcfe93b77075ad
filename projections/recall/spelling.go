package recall

import (
	"context"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

const (
	// spellingsOfWord is the most other spellings by which a word is looked for.
	spellingsOfWord = 8
	// twoEditsFrom is the number of letters from which a spelling may differ by two edits, not by one.
	twoEditsFrom = 9
)

// addSpellings adds to the question other spellings of words of letters that no text which the viewer may read holds.
// It reports whether it added any. The first search shows which words these may be, so most questions need no look-up.
func (s *Service) addSpellings(ctx context.Context, question *question, f *candidates) (bool, error) {
	if question.spelled {
		return false, nil
	}
	question.spelled = true
	words, places := missingWords(question, f)
	if len(words) == 0 {
		return false, nil
	}
	found, err := s.config.Index.Spellings(ctx, recallindex.SpellingQuery{
		Project: question.Project.ID, Audiences: question.Audiences, From: question.From, To: question.until(),
		Words: words, Size: spellingsOfWord,
	})
	if err != nil {
		return false, err
	}
	added := false
	for n, spellings := range found {
		added = question.Asked.AddSpellings(places[n], spellings) || added
	}
	return added, nil
}

// missingWords returns the words of the question that may be misspelt and that no hit has, at most as many as an index
// looks for, with their places among the terms.
func missingWords(question *question, f *candidates) (words []recallindex.SpellingWord, places []int) {
	var held recall.Words
	for _, hits := range [][]recallindex.Hit{f.Sources.Hits, f.Memories.Hits} {
		for _, h := range hits {
			held |= question.Asked.HeldAnywhere(h.Counts)
		}
	}
	for i, t := range question.Asked.Terms[:question.Asked.Own()] {
		if held.Has(i) || !t.Misspellable() || len(words) == recallindex.MaxSpellingWords {
			continue
		}
		edits := 1
		if utf8.RuneCountInString(t.Text) >= twoEditsFrom {
			edits = 2
		}
		words, places = append(words, recallindex.SpellingWord{Text: t.Text, Edits: edits}), append(places, i)
	}
	return words, places
}
