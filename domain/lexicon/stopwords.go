// Package lexicon holds word lists of languages. Each list names its source and its licence in its first lines.
package lexicon

import (
	"embed"
	"strings"
)

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
	for line := range strings.Lines(string(list)) {
		line, _, _ = strings.Cut(line, "#")
		for word := range strings.FieldsSeq(line) {
			words[word] = struct{}{}
		}
	}
	return words
}
