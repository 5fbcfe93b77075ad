package comprehend_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/internal/runtest"
)

// vocabulary is every word that the grammar compares with: single words of its conditions, words of
// its lists, and the inflected verbs.
type vocabulary struct{ named, listed, verbs []string }

func (v vocabulary) all() []string { return slices.Concat(v.named, v.listed, v.verbs) }

// readVocabulary collects the words of all string literals of the package, so that a new rule is
// tested without another list here.
func readVocabulary(t testing.TB) vocabulary {
	t.Helper()
	source := func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }
	packages, err := parser.ParseDir(token.NewFileSet(), ".", source, 0) //nolint:staticcheck // one folder, no build tags
	runtest.Must(t, err)
	named, listed := map[string]bool{}, map[string]bool{}
	for _, p := range packages {
		ast.Inspect(p, func(n ast.Node) bool {
			if _, imports := n.(*ast.ImportSpec); imports {
				return false
			}
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			runtest.Must(t, err)
			words := strings.FieldsFunc(text, func(r rune) bool { return r == '|' || unicode.IsSpace(r) })
			into := listed
			if len(words) == 1 {
				into = named
			}
			for _, w := range words {
				into[w] = true
			}
			return true
		})
	}
	v := vocabulary{
		slices.Sorted(maps.Keys(named)), slices.Sorted(maps.Keys(listed)),
		slices.Sorted(slices.Values(comprehend.Inflected())),
	}
	if len(v.named) < 300 || len(v.listed) < 1000 || len(v.verbs) < 1000 {
		t.Fatalf("%d, %d and %d words are not the words of the grammar", len(v.named), len(v.listed), len(v.verbs))
	}
	return v
}

var (
	marks = strings.Fields(`. . , , , ! ? : : ; - — ( ) " ' ’ “ ” / & @ # * > | [x] ... … n't 's 'd 'll 've 'm 're`)
	names = strings.Fields(
		`Ana Bo Ruiz Helix Acme Berlin API @ana ana@example.com https://a.example 3 12 2025 2025-06-03 16:00 5pm 3rd 90 1,000 12:61 31.12.2025 é 我`,
	)
)

// sentence draws so many tokens. Most are named words, since rules meet at them.
func (v vocabulary) sentence(n int, draw func(below int) int) string {
	var b strings.Builder
	for i := range n {
		var word string
		switch kind := draw(10); {
		case kind < 5:
			word = v.named[draw(len(v.named))]
		case kind < 6:
			word = v.listed[draw(len(v.listed))]
		case kind < 7:
			word = v.verbs[draw(len(v.verbs))]
		case kind < 9:
			word = marks[draw(len(marks))]
		default:
			word = names[draw(len(names))]
		}
		if draw(6) == 0 || i == 0 && draw(2) == 0 {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		if i > 0 && draw(8) > 0 && word != "," {
			b.WriteByte(' ')
		}
		b.WriteString(word)
	}
	return b.String()
}

// extractAll extracts from the text as content, as label and in metadata under the key, and returns
// what panicked.
func extractAll(t runtest.T, text, author, key string) (panicked any) {
	defer func() { panicked = recover() }()
	metadata, err := json.Marshal(map[string]any{
		"summary": text, text: "Ana", key: text,
		"notes": []any{text, map[string]string{key: text, "name": "Bo"}}, "user": map[string]string{key: text},
	})
	if err != nil {
		t.Errorf("metadata of %q: %v", text, err)
	}
	for _, in := range []comprehend.Input{
		{Content: text, Author: author},
		{Content: "Ana: " + text + "\nBo: " + text, Label: text, Metadata: metadata},
	} {
		in.DataPoint, in.Revision, in.OccurredAt = dataPoint, 1, time.Date(2025, 5, 12, 9, 30, 0, 0, time.UTC)
		obey(t, in, comprehend.Extract(in))
	}
	return nil
}

// The end of a sentence may come after every word of the grammar.
func TestExtract_SequencesOfItsOwnWords(t *testing.T) {
	v := readVocabulary(t)
	source := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test repeats
	sequences := 25_000
	if testing.Short() {
		sequences = 5_000
	}
	failures := 0
	for i := range sequences {
		text := v.sentence(1+source.IntN(2+i%9), source.IntN)
		author, key := "", v.named[source.IntN(len(v.named))]
		if i%2 == 0 {
			author, key = "Ana", v.listed[source.IntN(len(v.listed))]
		}
		if value := extractAll(t, text, author, key); value != nil {
			t.Errorf("%q: panic: %v", text, value)
			if failures++; failures > 20 {
				t.FailNow()
			}
		}
	}
}

// Each word at the end of a sentence, and after each word that opens an instruction.
func TestExtract_SentenceEndsAtEachWord(t *testing.T) {
	if testing.Short() {
		t.Skip("goes through all words many times, in one goroutine")
	}
	v := readVocabulary(t)
	for i, form := range []string{
		"%s", "ok, %s", "Rule: %s", "Ana %s", "I have never %s", "it is not %s",
		"When deploying, always %s", "My favourite %s", "%s, %s", "Please %s %s", "%s %s %s", "No %s after",
	} {
		for j, w := range v.all() {
			if (i+j)%3 > 0 && os.Getenv("ANNALS_HOSTILE") == "" {
				continue // a third of the words for each form, all of them in make soak
			}
			text := strings.ReplaceAll(form, "%s", w)
			if value := extractAll(t, text, "Ana", w); value != nil {
				t.Errorf("%q: panic: %v", text, value)
			}
		}
	}
}

func TestExtract_InstructionEndsBeforeItsVerb(t *testing.T) {
	for _, text := range []string{
		"ok, it", "Thanks, it", "Rule: it", "Reminder: it", "oh well, it", "and, it",
		"Remember: deployments", "ok, secrets", "ok: it is",
	} {
		if value := extractAll(t, text, "", "team"); value != nil {
			t.Errorf("%q: panic: %v", text, value)
		}
	}
}

// FuzzExtractWords reads each pair of bytes as a word of the grammar.
func FuzzExtractWords(f *testing.F) {
	v := readVocabulary(f)
	for i := range 16 {
		f.Add([]byte(fmt.Sprintf("\x07\x01ok%c\x08\x03,it%c", i, i)), "Ana")
	}
	f.Fuzz(func(t *testing.T, choices []byte, author string) {
		at := 0
		draw := func(below int) int {
			if len(choices) == 0 {
				return 0
			}
			n := int(choices[at%len(choices)])<<8 | int(choices[(at+1)%len(choices)])
			at += 2
			return (n + at/len(choices)) % below
		}
		key := v.sentence(1, draw)
		text := v.sentence(1+len(choices)/6%40, draw)
		if value := extractAll(t, text, author, key); value != nil {
			t.Errorf("%q: panic: %v", text, value)
		}
	})
}
