package lexicon_test

import (
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/lexicon"
)

func TestStopWords(t *testing.T) {
	cases := map[string]string{
		"de": "der und nicht für", "fr": "le et été", "es": "el está y", "it": "il perché è", "pt": "não os à",
		"nl": "het een niet", "ru": "и не она", "sv": "och på är", "en": "the of who",
	}
	for language, want := range cases {
		words := lexicon.StopWords(language)
		for word := range strings.FieldsSeq(want) {
			if _, ok := words[word]; !ok {
				t.Errorf("%s: %q is missing", language, word)
			}
		}
		for word := range words {
			if strings.ToLower(word) != word || strings.ContainsAny(word, "|#") {
				t.Errorf("%s: %q is no word in lower case", language, word)
			}
		}
	}
	if n := len(lexicon.StopWords("xx")); n != 0 {
		t.Errorf("%d words of an unknown language", n)
	}
}
