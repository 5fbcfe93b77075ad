package recall_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

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

func TestConversationOf(t *testing.T) {
	key := recall.ConversationOf([]byte(`{"thread":"t1"}`))
	if key == 0 {
		t.Fatal("a thread has no key")
	}
	for _, same := range []string{
		`{"session":"t1"}`, `{"conversation": "t1", "thread": "t2"}`, `{"a":1,"thread":"\u0074\u0031"}`,
		`{"conversation":"","thread":"t1"}`, `{"conversation":null,"thread":"t1"}`,
	} {
		if got := recall.ConversationOf([]byte(same)); got != key && same[2] != 'c' {
			t.Errorf("%s has key %d, want %d", same, got, key)
		}
	}
	if other := recall.ConversationOf([]byte(`{"thread":7}`)); other == 0 || other == key {
		t.Errorf("a number has key %d", other)
	}
	for _, none := range []string{
		``, `{}`, `{"channel":"t1"}`, `{"label":"t1"}`, `{"thread":null}`, `{"thread":{"id":"t1"}}`,
		`{"meta":{"thread":"t1"}}`, `{"thread":true}`, `{"Thread":"t1"}`,
	} {
		if got := recall.ConversationOf([]byte(none)); got != 0 {
			t.Errorf("%s has key %d", none, got)
		}
	}
}

// Similarity adds to the score of words or takes from it, and finds what words do not. A turn with a word of the
// question is found however far its meaning is.
func TestRank_Similarity(t *testing.T) {
	a := recall.NewAnalyzer()
	question := a.Question("Who likes tea?", "", began)
	turns, weights := talk(a, question, []turnLine{{"Ana", "Tea is what counts", 0}, {
		"Ana", "Tea is what counts",
		48 * time.Hour,
	}, {"Ana", "Hot leaves in water", 96 * time.Hour}, {"Ana", "Rain", 144 * time.Hour}})
	before := a.Rank(question, weights, turns)
	if before[0] != before[1] || before[2] != 0 {
		t.Fatalf("scores %v", before)
	}
	turns[1].Similarity, turns[2].Window, turns[3].Similarity = 1, 2, -3
	after := a.Rank(question, weights, turns)
	if after[0] != before[0] || after[1] <= before[1] || after[2] <= 0 || after[2] >= after[0] || after[3] > 0 {
		t.Errorf("scores %v, without similarity %v", after, before)
	}
	turns[0].Similarity, turns[0].Window = -1, -1
	if less := a.Rank(question, weights, turns)[0]; less >= before[0] || less <= 0 {
		t.Errorf("score %v of a text with the word and another meaning, %v by its words", less, before[0])
	}
	turns[0].Similarity, turns[0].Window = -30, -30
	if least := a.Rank(question, weights, turns)[0]; least <= 0 {
		t.Errorf("score %v of a text with the word", least)
	}
	if without := a.Rank(question, weights, turns, "semantic", "semantic window"); without[1] != before[1] || without[2] != before[2] {
		t.Errorf("the signal counts although it is left out: %v", without)
	}
	// A question whose words occur nowhere is answered by similarity alone.
	unknown := a.Question("Xylophone?", "", began)
	turns, _ = talk(a, unknown, []turnLine{{"Ana", "She plays the mallets", 0}})
	turns[0].Similarity = 1
	nowhere := recall.Statistics{Frequencies: make([]recall.Count, len(unknown.Terms))}
	if scores := a.Rank(unknown, nowhere.Weights(unknown.Terms), turns); scores[0] <= 0 {
		t.Errorf("score %v", scores)
	}
}

// termOfScore is a term of a score that the page shows: a signal, its value, and its weight.
var termOfScore = regexp.MustCompile(`([a-z][a-z ]*) [0-9.]+×([0-9.]+)`)

// The table of signals in docs/how-recall-ranks.md has each signal with the weight of the code, and no other. A
// row may hold several: "before, after" and "0.3, 0.25". The scores that the page shows have these weights.
func TestSignalWeights_OfPage(t *testing.T) {
	const heading = "\n## The signals\n"
	page, err := os.ReadFile("../../docs/how-recall-ranks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), heading)
	if !found {
		t.Fatalf("the page has no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	shown := map[string]float64{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 {
			continue
		}
		names, values := strings.Split(cells[0], ","), strings.Split(cells[1], ",")
		for i, value := range values {
			weight, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				break // the heading, or a factor
			}
			if len(names) != len(values) {
				t.Fatalf("%d weights for %d signals: %s", len(values), len(names), line)
			}
			shown[strings.TrimSpace(names[i])] = weight
		}
	}
	weights := map[string]float64{}
	for _, of := range recall.SignalWeights() {
		weights[of.Signal] = of.Weight
		weight, is := shown[of.Signal]
		if !is {
			t.Errorf("the page has no signal %q", of.Signal)
		} else if weight != of.Weight {
			t.Errorf("%s weighs %v in the page, %v in the code", of.Signal, weight, of.Weight)
		}
		delete(shown, of.Signal)
	}
	for name := range shown {
		t.Errorf("the code has no signal %q", name)
	}
	terms := termOfScore.FindAllStringSubmatch(string(page), -1)
	if len(terms) == 0 {
		t.Error("the page shows no score")
	}
	for _, term := range terms {
		if weight, err := strconv.ParseFloat(term[2], 64); err != nil || weight != weights[strings.TrimSpace(term[1])] {
			t.Errorf("a score of the page has %q, the code %v", term[0], weights[strings.TrimSpace(term[1])])
		}
	}
}
