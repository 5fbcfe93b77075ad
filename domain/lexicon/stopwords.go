package lexicon

import "embed"

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
