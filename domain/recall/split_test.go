package recall_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/recall"
)

// TestNumbered_AsTheIndex: the numbers of passages are those of the documents of the index, whatever the text has.
func TestNumbered_AsTheIndex(t *testing.T) {
	analyzer := recall.NewAnalyzer()
	blocks := []string{
		"the boat is old. ", "日本の船。", "\n\n", " ", "\u0301", "\u200d", "\u00ad", "!?", "'", "ʼ", "the ", "\x00", "👍🏽", "ไทย", "\u0903", "x\n",
	}
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		for range rapid.IntRange(0, 12).Draw(t, "runs") {
			block := rapid.SampledFrom(blocks).Draw(t, "block")
			b.WriteString(strings.Repeat(block, rapid.SampledFrom([]int{1, 3, 2100}).Draw(t, "times")))
		}
		text := b.String()
		passages := analyzer.Passages(recall.Document{Content: text})
		n := 0
		for number, span := range recall.Numbered(text) {
			if number != n || n >= len(passages) {
				t.Fatalf("passage %d has number %d of %d", n, number, len(passages))
			}
			if terms := analyzer.Terms(text[span.Start:span.End]); !slices.Equal(terms, passages[n].Text) {
				t.Fatalf("passage %d has terms %q, want %q", n, terms, passages[n].Text)
			}
			n++
		}
		if n != len(passages) {
			t.Fatalf("%d passages, want %d", n, len(passages))
		}
		if one := recall.IsOnePassage(text); one && n > 1 {
			t.Fatalf("a text of %d passages is one", n)
		}
	})
}

func TestExcerpt(t *testing.T) {
	analyzer := recall.NewAnalyzer()
	terms := analyzer.Query("Where is the spare key?")
	frequencies := make([]recall.Count, len(terms))
	for i := range frequencies {
		frequencies[i].Text = 2 + 3*(terms[i].For%2)
	}
	weights := recall.Statistics{Docs: 100, Frequencies: frequencies}.Weights(terms)
	filler := strings.Repeat("Pump reading normal, no alarm here. ", 12)
	long := filler + "The spare key is under the crate. " + filler
	words := strings.Repeat("pump ", 200) + "spare key " + strings.Repeat("pump ", 200)
	for _, c := range []struct{ name, passage, want string }{
		{"the best line", "One key.\n  The spare key is under the crate. \nSpare time.", "The spare key is under the crate."},
		{"a short passage", "The spare key.", "The spare key."},
		{"without the words", "\n \nOne line.\nAnother.", "One line."},
		{"sentences of a long line", long, "The spare key is under the crate."},
		{"words of a long line", words, "spare key"},
		{"a word without an end", strings.Repeat("x", 1000), strings.Repeat("x", 300)},
		{"nothing", " \n", ""},
	} {
		got := analyzer.Excerpt(c.passage, terms, weights)
		if !strings.Contains(got, c.want) || !strings.Contains(c.passage, got) || utf8.RuneCountInString(got) > 300 ||
			got != strings.TrimSpace(got) || c.want == "" && got != "" {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
