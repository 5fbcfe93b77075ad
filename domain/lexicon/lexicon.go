// Package lexicon has the word lists of the analysis. Each is made of an open source, which its file names with
// its licence.
package lexicon

import (
	_ "embed"
	"strings"
	"sync"
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
