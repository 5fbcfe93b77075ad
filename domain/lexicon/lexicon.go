// Package lexicon has the word lists of the analysis. Each is made of an open source, which its file names with
// its licence.
package lexicon

import (
	"embed"
	"iter"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

//go:generate go run ./internal/wordnet $WORDNET wordnet

//go:embed wordnet/irregular.txt
var irregular string

var bases = sync.OnceValue(readBases)

func readBases() map[string]string {
	pairs := make(map[string]string, strings.Count(irregular, "\n"))
	for line := range entries(irregular) {
		form, base, _ := strings.Cut(line, " ")
		pairs[form] = base
	}
	return pairs
}

// Base returns the base of an irregular English form in lower case: "go" for "went", "child" for "children". It
// returns false for other words. A base has no base. It is safe for concurrent use.
func Base(form string) (base string, irregular bool) {
	base, irregular = bases()[form]
	return base, irregular
}

// entries returns the lines of a data file without those that begin with "#" and empty ones.
func entries(file string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(file) {
			line = strings.TrimSpace(line)
			if line != "" && line[0] != '#' && !yield(line) {
				return
			}
		}
	}
}

//go:embed stopwords/*.txt
var stopWords embed.FS

// StopWords returns the stop words of a language by its ISO 639-1 code, in lower case with their accents: words without
// a subject, as articles, pronouns, prepositions and auxiliaries. It is empty for a language without a list.
func StopWords(language string) map[string]struct{} {
	words := make(map[string]struct{})
	list, err := stopWords.ReadFile("stopwords/" + language + ".txt")
	if err != nil {
		return words
	}
	for word := range entries(string(list)) {
		words[word] = struct{}{}
	}
	return words
}

//go:embed han/simplified.txt
var simplified string

//go:embed han/traditional.txt
var traditional string

// HanVariants returns the simplified forms of a traditional character, and the traditional ones of a simplified one,
// the usual first; nil for any other character. One character may have several of either.
func HanVariants(r rune) []rune { return hanVariants()[r] }

var hanVariants = sync.OnceValue(func() map[rune][]rune {
	variants := make(map[rune][]rune)
	var back [][2]rune
	add := func(of, variant rune) {
		if of != variant && !slices.Contains(variants[of], variant) {
			variants[of] = append(variants[of], variant)
		}
	}
	for _, table := range []string{simplified, traditional} {
		for line := range entries(table) {
			character, list, _ := strings.Cut(line, "\t")
			of, _ := utf8.DecodeRuneInString(character)
			for form := range strings.FieldsSeq(list) {
				variant, _ := utf8.DecodeRuneInString(form)
				add(of, variant)
				back = append(back, [2]rune{variant, of})
			}
		}
	}
	for _, pair := range back { // what one table has, the other may lack
		add(pair[0], pair[1])
	}
	return variants
})
