package lexicon

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

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
