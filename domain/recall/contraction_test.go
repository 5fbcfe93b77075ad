package recall_test

import (
	"slices"
	"testing"

	"github.com/annals-project/annals/domain/recall"
)

// TestQuery_ContractionsHideNoWord: a stop word with an apostrophe is no reason to leave out a word that has the same
// letters without it.
func TestQuery_ContractionsHideNoWord(t *testing.T) {
	a := recall.NewAnalyzer()
	for _, word := range []string{"shed", "ill", "hell", "shell", "well", "wed", "id"} {
		text := "Which one is the " + word + " of the year?"
		if terms := a.Query(text); !slices.ContainsFunc(terms, func(term recall.Term) bool { return term.Text == word }) {
			t.Errorf("%q is not asked for: %+v", word, terms)
		}
	}
	for _, text := range []string{"Is it what she'd like?", "What can't the man like?", "Here's what they don’t like"} {
		var words []string
		for _, term := range a.Query(text) {
			if term.Kind == recall.Whole {
				words = append(words, term.Text)
			}
		}
		words = slices.DeleteFunc(words, func(word string) bool { return word == "man" })
		if !slices.Equal(words, []string{"like"}) {
			t.Errorf("%q asks for %q", text, words)
		}
	}
	// Letters that are stop words by themselves stay so.
	if terms := a.Query("Est-ce que tu m as donné le vélo dans la rue"); slices.ContainsFunc(terms, func(term recall.Term) bool {
		return term.Text == "m" || term.Text == "tu"
	}) {
		t.Errorf("a stop word of one letter is asked for: %+v", terms)
	}
}

// TestTerms_NounOrVerb: a form that is an irregular noun and a regular verb is found as either.
func TestTerms_NounOrVerb(t *testing.T) {
	a := recall.NewAnalyzer()
	for asked, text := range map[string]string{
		"leave": "The flight leaves at noon", "leaf": "The leaves are red", "live": "Petra lives in Lund",
		"life": "Both lives were long", "wolf": "The wolves are grey",
	} {
		terms := a.Terms(text)
		if !slices.ContainsFunc(a.Query(asked), func(term recall.Term) bool {
			return term.Kind == recall.Stem && slices.Contains(terms, term.Text)
		}) {
			t.Errorf("%q is not found in %q", asked, terms)
		}
	}
}
