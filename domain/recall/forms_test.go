package recall_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/cases"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/recall"
)

// alphabets are letters, marks and signs of many scripts, from which texts are made.
var alphabets = []string{
	"abcxyzABCXYZ0123456789", "äöüßÄÖÜẞéèêñçãõåæøłđðþœħıİŉŀĿǆǅﬁﬀſ", "ạệễữơưĐ\u0301\u0302\u0308\u0323\u031b", "ΑΒΣσςάΰῷᾳᾼὈ\u0345",
	"йёЙЁїґўабвАБВ", "שלום\u05b8\u05bc\ufb2a\ufb4f", "\u0643\u0650\u062a\u0627\u0628آأإؤئةىیکگ\u0640\ufefb\ufdfa", "한강창고는\u1112\u1161\u11ab\u3131",
	"東京都鍵〆々", "ガラスカーハバパｶﾞﾗｽ\u3099\u309a", "ชั้นสำ\u0e33", "ກຳໜ", "ភាសា\u17d2", "မြန်မာ", "हिन्दी\u095cक\u093c", "１２３ＡＢＣ－，．＃＋", "٤٢१२൪", "½²①⑴℀№™㍿",
	" \n\t\u00a0\u2009\u202f\u3000", ".,-_:/+@'’#!?()$€·‐⁄", "\u00ad\u200b\u200d\ufe0f\u2060", "\xff\xc3",
}

func anyText() *rapid.Generator[string] {
	piece := rapid.Custom(func(t *rapid.T) string {
		letters := []rune(rapid.SampledFrom(alphabets).Draw(t, "alphabet"))
		return string(rapid.SliceOfN(rapid.SampledFrom(letters), 1, 5).Draw(t, "letters"))
	})
	return rapid.Map(rapid.SliceOfN(rapid.OneOf(piece, piece, piece, rapid.String()), 0, 8),
		func(pieces []string) string { return strings.Join(pieces, "") })
}

// TestTerms_NormalForms: each normal form of a text has the same terms, and asks for the same.
func TestTerms_NormalForms(t *testing.T) {
	a := recall.NewAnalyzer()
	rapid.Check(t, func(t *rapid.T) {
		text := anyText().Draw(t, "text")
		terms, query := a.Terms(text), a.Query(text)
		for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
			other := form.String(text)
			if diff := cmp.Diff(terms, a.Terms(other)); diff != "" {
				t.Fatalf("form %d of %+q is %+q: %s", form, text, other, diff)
			}
			if diff := cmp.Diff(query, a.Query(other)); diff != "" {
				t.Fatalf("query: form %d of %+q is %+q: %s", form, text, other, diff)
			}
		}
	})
}

// TestTerms_Case: a text is found by its lower and its upper case. If it is written in one case, it has all words of
// the other.
func TestTerms_Case(t *testing.T) {
	a := recall.NewAnalyzer()
	rapid.Check(t, func(t *rapid.T) {
		text := anyText().Draw(t, "text")
		lower, upper := cases.Lower(language.Und).String(text), cases.Upper(language.Und).String(text)
		for _, query := range []string{lower, upper} {
			terms, asked := a.Terms(text), wholes(a.Query(query))
			if len(asked) > 0 && !slices.ContainsFunc(asked, func(w string) bool { return slices.Contains(terms, w) }) {
				t.Fatalf("%+q asks for %+q, not for %+q, the terms of %+q", query, asked, terms, text)
			}
		}
		terms := a.Terms(lower)
		for _, word := range a.Words(upper) {
			if !slices.Contains(terms, word) {
				t.Fatalf("%+q has %+q, not in %+q, the terms of %+q", upper, word, terms, lower)
			}
		}
	})
}

func wholes(terms []recall.Term) (words []string) {
	for _, term := range terms {
		if term.Kind == recall.Whole {
			words = append(words, term.Text)
		}
	}
	return words
}
