package recall_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/recall"
)

// drawScene draws a question with the turns that are ranked for it.
func drawScene(t *rapid.T) (recall.Question, recall.Weights, []recall.Turn) {
	a := recall.NewAnalyzer()
	words := []string{"Ana", "Ben", "tea", "harbour", "guitar", "launch", "on 20 June 2025", "drink", "my"}
	text := rapid.SampledFrom([]string{"", "When ", "How many ", "Who ", "In what order "}).Draw(t, "beginning")
	for _, word := range rapid.SliceOfN(rapid.SampledFrom(words), 1, 5).Draw(t, "words") {
		text += word + " "
	}
	question := a.Question(text, "Ana", began)
	statistics := recall.Statistics{Docs: 64, Frequencies: make([]recall.Count, len(question.Terms))}
	count := rapid.IntRange(0, 3)
	for i := range statistics.Frequencies {
		statistics.Frequencies[i] = recall.Count{Text: count.Draw(t, "in texts"), Label: count.Draw(t, "in labels")}
	}
	turns := make([]recall.Turn, rapid.IntRange(0, 12).Draw(t, "turns"))
	for i := range turns {
		turn := recall.Turn{
			Length: rapid.IntRange(0, 60).Draw(t, "length"), Size: rapid.Int64Range(0, 9000).Draw(t, "size"),
			Traits:     recall.Traits(rapid.IntRange(0, 63).Draw(t, "traits")),
			Key:        max(0, rapid.Float64Range(-3, 3).Draw(t, "key")),
			Similarity: rapid.Float64Range(-1, 3).Draw(t, "similarity"),
			Author:     rapid.SampledFrom([]string{"", "Ana", "Ben"}).Draw(t, "author"),
			OccurredAt: began.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "minutes")) * time.Minute),
			Before:     recall.None, After: recall.None,
		}
		if rapid.Bool().Draw(t, "has words") {
			turn.Counts = make([]recall.Count, len(question.Terms))
			for n := range turn.Counts {
				turn.Counts[n] = recall.Count{Text: count.Draw(t, "text"), Label: count.Draw(t, "label")}
			}
		}
		if i > 0 && rapid.Bool().Draw(t, "next") {
			turn.Before, turns[i-1].After = i-1, i
		}
		turns[i] = turn
	}
	return question, statistics.Weights(question.Terms), turns
}

// combined is the score that the parts of an explained turn make.
func combined(e recall.ExplainedTurn) (score float64) {
	for _, c := range e.Contributions {
		score += c.Value * c.Weight
	}
	for _, f := range e.Factors {
		score *= f.Value
	}
	return score
}

func TestRankExplained_CombinesToTheScore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		question, weights, turns := drawScene(t)
		a := recall.NewAnalyzer()
		scores, explained := a.Rank(question, weights, turns), a.RankExplained(question, weights, turns)
		if len(explained.Turns) != len(scores) {
			t.Fatalf("%d turns are explained, want %d", len(explained.Turns), len(scores))
		}
		for i, e := range explained.Turns {
			if e.Score != scores[i] {
				t.Errorf("turn %d: score %v, Rank returns %v", i, e.Score, scores[i])
			}
			if got := combined(e); math.Abs(got-e.Score) > 1e-9*max(1, math.Abs(e.Score)) {
				t.Errorf("turn %d: its parts make %v, its score is %v: %+v", i, got, e.Score, e)
			}
			for _, c := range e.Contributions {
				if c.Signal == "" || c.Value == 0 || c.Weight == 0 {
					t.Errorf("turn %d: %+v", i, c)
				}
			}
			for _, f := range e.Factors {
				if f.Name == "" || f.Value == 1 {
					t.Errorf("turn %d: %+v", i, f)
				}
			}
		}
	})
}

func TestRankExplained_NamesTheParts(t *testing.T) {
	a := recall.NewAnalyzer()
	question := a.Question("In what order did Ana see the harbour?", "", began)
	turns, weights := talk(a, question, []turnLine{
		{"Ana", "The harbour, the harbour", 0}, {"Ben", "Which harbour, Ana?", time.Minute},
	})
	explained := a.RankExplained(question, weights, turns)
	names := func(e recall.ExplainedTurn) (list []string) {
		for _, c := range e.Contributions {
			list = append(list, c.Signal)
		}
		for _, f := range e.Factors {
			list = append(list, f.Name)
		}
		return list
	}
	want := [][]string{
		{"words", "author", "after", "context overlap", "conversation"},
		{"words", "before", "context overlap", "conversation", "is question", "spread"},
	}
	for i, e := range explained.Turns {
		if diff := cmp.Diff(want[i], names(e)); diff != "" {
			t.Errorf("turn %d (-want +got):\n%s", i, diff)
		}
	}
	if explained.Named != "Ana" || explained.Usual <= 0 || len(explained.Content) == 0 {
		t.Errorf("named %q, usual weight %v, content %v", explained.Named, explained.Usual, explained.Content)
	}
}
