package recall

import "github.com/annals-project/annals/domain/lexicon"

// baseOf returns the base of an irregular English word, and any other word as it is.
func baseOf(word string) string {
	if base, irregular := lexicon.Base(word); irregular {
		return base
	}
	return word
}
