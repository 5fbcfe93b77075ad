package lexicon_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/lexicon"
	"github.com/annals-project/annals/internal/runtest"
)

// read returns the header of a data file and its entries.
func read(t *testing.T, name string) (header string, entries []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	runtest.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			header += line
			continue
		}
		entries = append(entries, strings.TrimSuffix(line, "\n"))
	}
	return header, entries
}

func TestFiles_Sourced(t *testing.T) {
	files, err := filepath.Glob("*/*.txt")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, name := range files {
		header, entries := read(t, name)
		if !strings.HasPrefix(header, "# Source: ") || !strings.Contains(header, "\n# Licence: ") {
			t.Errorf("%s names no source or no licence: %q", name, header)
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(name), "LICENSE")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(entries) == 0 || !slices.IsSorted(entries) || len(slices.Compact(slices.Clone(entries))) != len(entries) {
			t.Errorf("%s: the entries are not sorted, or twice, or none", name)
		}
		for _, e := range entries {
			if e == "" || e != strings.ToLower(e) || e != strings.TrimSpace(e) {
				t.Errorf("%s: entry %q", name, e)
			}
		}
	}
}

func TestBase(t *testing.T) {
	for form, want := range map[string]string{
		"went": "go", "children": "child", "better": "good", "happier": "happy", "laid": "lie", "wives": "wife",
		"leaves": "leaf", "taught": "teach", "found": "find", "mice": "mouse", "geese": "goose", "hidden": "hide",
		// As words of their own they are more common than as forms.
		"ground": "", "wound": "", "bit": "", "data": "",
		// Not irregular, or no word at all.
		"walked": "", "go": "", "": "", "Went": "", "# Source: WordNet 3.0, exception": "",
	} {
		if got, irregular := lexicon.Base(form); got != want || irregular != (want != "") {
			t.Errorf("the base of %q is %q (%v), want %q", form, got, irregular, want)
		}
	}
}

func TestBase_OfEveryForm(t *testing.T) {
	_, entries := read(t, "wordnet/irregular.txt")
	if len(entries) < 5000 {
		t.Errorf("%d irregular forms", len(entries))
	}
	for _, e := range entries {
		form, base, found := strings.Cut(e, " ")
		got, irregular := lexicon.Base(form)
		if !found || !irregular || got != base || base == form {
			t.Errorf("%q: the base is %q", e, got)
		}
		if end, again := lexicon.Base(base); again {
			t.Errorf("%q: the base has the base %q", e, end)
		}
	}
}

func TestStopWords_English(t *testing.T) {
	stops := lexicon.StopWords("en")
	for word, want := range map[string]bool{
		"the": true, "i": true, "very": true, "don't": true, "may": false, "us": false, "one": false, "c": false, "name": false, "": false,
	} {
		if _, stop := stops[word]; stop != want {
			t.Errorf("%q: stop word %v", word, stop)
		}
	}
	_, entries := read(t, "stopwords/en.txt")
	if len(stops) != 174 || len(entries) != 174 {
		t.Errorf("%d stop words, %d entries", len(stops), len(entries))
	}
	for _, e := range entries {
		if _, stop := stops[e]; !stop {
			t.Errorf("%q is no stop word", e)
		}
	}
}

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

func TestHanVariants(t *testing.T) {
	for of, want := range map[rune][]rune{
		'電': {'电'}, '电': {'電'}, '腦': {'脑'}, '发': {'發', '髮'}, '髮': {'发'}, '發': {'发'}, '后': {'後'}, '後': {'后'},
		'臺': {'台'}, '裡': {'里'}, '項': {'项'}, '目': nil, 'a': nil, 'カ': nil,
	} {
		if got := lexicon.HanVariants(of); !slices.Equal(got, want) {
			t.Errorf("%c: %q, want %q", of, got, want)
		}
	}
	for of := rune(0x4E00); of < 0xA000; of++ {
		for _, variant := range lexicon.HanVariants(of) {
			if !slices.Contains(lexicon.HanVariants(variant), of) {
				t.Errorf("%c is a form of %c, and not the other way around", variant, of)
			}
		}
	}
}
