package recall_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/recall"
)

func TestWords_Sets(t *testing.T) {
	for n, want := range map[int]recall.Words{0: 0, 1: 1, 3: 7, 63: 1<<63 - 1, 64: 1<<64 - 1} {
		all := recall.AllWords(n)
		if all != want || all.Has(n) && n < 64 || n > 0 && !all.Has(n-1) {
			t.Errorf("the first %d words are %b", n, all)
		}
	}
	for _, c := range []struct {
		set, other recall.Words
		contains   bool
	}{
		{0, 0, true},
		{5, 0, true},
		{5, 4, true},
		{5, 5, true},
		{5, 2, false},
		{5, 7, false},
		{0, 1, false},
		{1 << 63, 1 << 63, true},
		{1 << 62, 1 << 63, false},
	} {
		if got := c.set.Contains(c.other); got != c.contains {
			t.Errorf("%b contains %b: %v", c.set, c.other, got)
		}
	}
}

func TestQuestion_HeldAndMatched(t *testing.T) {
	q := recall.Question{Terms: []recall.Term{
		{Text: "ropes", For: 0},
		{Text: "walls", For: 1},
		{Text: "~en:rope", Kind: recall.Stem, For: 0},
		{Text: "~en:wall", Kind: recall.Stem, For: 1},
		{Text: "wells", Kind: recall.Spelling, For: 1},
	}}
	one, label := recall.Count{Text: 1}, recall.Count{Label: 1}
	for _, c := range []struct {
		name             string
		counts           []recall.Count
		held             recall.Words
		exactly, spelled bool
	}{
		{"nothing", nil, 0, false, false},
		{"no term", make([]recall.Count, 5), 0, false, false},
		{"a word", []recall.Count{one, {}, {}, {}, {}}, 1, true, false},
		{"stems", []recall.Count{{}, {}, one, one, {}}, 3, true, false},
		{"a word in the label", []recall.Count{{}, label, {}, {}, {}}, 0, true, false},
		{"a stem in the label", []recall.Count{{}, {}, label, {}, {}}, 0, true, false},
		{"a spelling", []recall.Count{{}, {}, {}, {}, one}, 0, false, true},
		{"a spelling in the label", []recall.Count{{}, {}, {}, {}, label}, 0, false, true},
		{"a word and a spelling of another", []recall.Count{one, {}, {}, {}, one}, 1, true, true},
	} {
		held := q.Held(c.counts)
		exactly, spelled := q.Matched(c.counts)
		if held != c.held || exactly != c.exactly || spelled != c.spelled {
			t.Errorf("%s: holds %b, exactly %v, spelled %v", c.name, held, exactly, spelled)
		}
	}
}

// TestQuestion_HeldOf64 has the most words of a question.
func TestQuestion_HeldOf64(t *testing.T) {
	a := recall.NewAnalyzer()
	text := ""
	for n := range 70 {
		text += fmt.Sprintf("%d ", 1000+7*n)
	}
	q := a.Question(text, "", began)
	if q.Own() != 64 {
		t.Fatalf("%d words", q.Own())
	}
	counts := make([]recall.Count, len(q.Terms))
	for i := range counts {
		counts[i].Text = 1
	}
	if held := q.Held(counts); held != recall.AllWords(64) {
		t.Errorf("all words are %b", held)
	}
	counts = make([]recall.Count, len(q.Terms))
	counts[63].Text = 1
	if held := q.Held(counts); held != 1<<63 {
		t.Errorf("the last word is %b", held)
	}
}

// TestStatistics_WeightsOfWords: a word and its stems weigh the same, by how many texts have any of them: stems of
// several languages are in different texts. A beginning of a Korean word weighs by itself, and a word that no text has
// as its other spellings do.
func TestStatistics_WeightsOfWords(t *testing.T) {
	stem := func(text string, of int) recall.Term { return recall.Term{Text: text, Kind: recall.Stem, For: of} }
	terms := []recall.Term{
		{Text: "hauser", For: 0},
		{Text: "서울에서", For: 1},
		{Text: "40", For: 2},
		{Text: "nobody", For: 3},
		stem("~en:hauser", 0), stem("~de:haus", 0), stem("~de:hauser", 0),
		stem("~ko:서울에서", 1), stem("~ko:서", 1), stem("~ko:서울", 1), stem("~en:nobodi", 3),
		{Text: "nobodies", Kind: recall.Spelling, For: 3},
	}
	texts := []int{3, 1, 30, 0, 2, 60, 40, 1, 200, 20, 0, 9}
	labels := []int{90, 0, 0, 0, 0, 4, 5, 0, 0, 2, 0, 7}
	wantTexts := []int{62, 1, 30, 9, 62, 62, 62, 1, 200, 20, 9, 9}
	wantLabels := []int{90, 0, 0, 7, 90, 90, 90, 0, 0, 2, 7, 7}
	count := func(texts, labels []int) recall.Statistics {
		s := recall.Statistics{Docs: 1000}
		for i := range texts {
			s.Frequencies = append(s.Frequencies, recall.Count{Text: texts[i], Label: labels[i]})
		}
		return s
	}
	given := count(texts, labels)
	weights := given.Weights(terms)
	alone := make([]recall.Term, len(terms))
	for i := range alone {
		alone[i] = recall.Term{Text: fmt.Sprint(i), For: i}
	}
	want := count(wantTexts, wantLabels).Weights(alone)
	for i, term := range terms {
		if weights.Text(i) != want.Text(i) || weights.Label(i) != want.Label(i) {
			t.Errorf("%q weighs %v and %v, want %v and %v", term.Text, weights.Text(i), weights.Label(i), want.Text(i),
				want.Label(i))
		}
	}
	if weights.Text(0) >= weights.Text(2) || weights.Text(8) >= weights.Text(0) || weights.Text(1) <= weights.Text(2) {
		t.Errorf("what more texts have weighs less: %v", weights)
	}
	if diff := cmp.Diff(count(texts, labels), given); diff != "" {
		t.Errorf("the statistics are changed: %s", diff)
	}
}
