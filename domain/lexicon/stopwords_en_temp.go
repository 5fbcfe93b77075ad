package lexicon

import (
	_ "embed"
	"sync"
)

//go:embed stopwords/en.txt
var english string

var englishStops = sync.OnceValue(func() map[string]struct{} {
	set := map[string]struct{}{}
	for word := range entries(english) {
		set[word] = struct{}{}
	}
	return set
})

// StopWords returns the stop words of a language by its code, nil if there are none. The caller must not change them.
func StopWords(lang string) map[string]struct{} {
	if lang != "en" {
		return nil
	}
	return englishStops()
}
