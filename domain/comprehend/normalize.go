package comprehend

import (
	"strings"
	"unicode"

	"github.com/kljensen/snowball/english"
)

// normalize returns a name as it is compared: in lower case, without articles, punctuation and
// double spaces.
func normalize(text string) string { return strings.Join(normalizeWords(text), " ") }

// normalizeAttribute returns the attribute of a claim as it is compared: normalized and stemmed, so
// that "favourite editor" and "favorite editors" are one attribute.
func normalizeAttribute(text string) string {
	words := normalizeWords(text)
	for i, w := range words {
		if s, ok := spellings[w]; ok {
			w = s
		}
		words[i] = english.Stem(w, true)
	}
	return strings.Join(words, " ")
}

// spellings are words with a second spelling or a short form.
var spellings = map[string]string{
	"favorite": "favourite", "fave": "favourite", "fav": "favourite", "color": "colour", "flavor": "flavour", "neighbor": "neighbour",
	"hobbies": "hobby", "birthdate": "birthday", "timezone": "zone", "movie": "film", "movies": "film",
}

func normalizeWords(text string) []string {
	words := strings.FieldsFunc(straight(flat(text)), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && r != '\'' && r != '@' && r != '.' &&
			r != '+' && r != '#' && r != '-' && r != '_'
	})
	kept := words[:0]
	for _, w := range words {
		w = strings.Trim(w, "'.-")
		w = strings.TrimSuffix(w, "'s")
		if w != "" && w != "the" && w != "a" && w != "an" {
			kept = append(kept, w)
		}
	}
	return kept
}

// Subject returns the subject of a claim as claims are compared by it. Every extractor must use
// Subject and Attribute, so that a claim supersedes an earlier one of another extractor.
func Subject(text string) string { return normalize(text) }

// Attribute returns the attribute of a claim as claims are compared by it.
func Attribute(text string) string { return normalizeAttribute(text) }
