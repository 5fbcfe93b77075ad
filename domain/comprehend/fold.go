package comprehend

import (
	"strings"
	"unicode"

	"github.com/kljensen/snowball/english"
)

// fold is a name as it is compared: in lower case, without articles, punctuation and double spaces.
func fold(text string) string { return strings.Join(foldWords(text), " ") }

// foldAttribute is what a claim says about its subject, as it is compared: folded, with its words as stems, so that
// "favourite editor" and "favorite editors" are one attribute.
func foldAttribute(text string) string {
	words := foldWords(text)
	for i, w := range words {
		if s, ok := spellings[w]; ok {
			w = s
		}
		words[i] = english.Stem(w, true)
	}
	return strings.Join(words, " ")
}

// spellings are words that are written in two ways, or short.
var spellings = map[string]string{
	"favorite": "favourite", "fave": "favourite", "fav": "favourite", "color": "colour", "flavor": "flavour", "neighbor": "neighbour",
	"hobbies": "hobby", "birthdate": "birthday", "timezone": "zone", "movie": "film", "movies": "film",
}

func foldWords(text string) []string {
	words := strings.FieldsFunc(straight(flat(text)), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && r != '\'' && r != '@' && r != '.' && r != '+' && r != '#' && r != '-' && r != '_'
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

// Subject is a subject of a claim as claims are compared by it, and Attribute what a claim says about it. Whoever else than
// Extract derives claims uses both, so that a claim supersedes an earlier one whoever read it.
func Subject(text string) string { return fold(text) }

// Attribute is described at Subject.
func Attribute(text string) string { return foldAttribute(text) }
