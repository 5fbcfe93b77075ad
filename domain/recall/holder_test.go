package recall_test

import (
	"testing"
	"time"

	"github.com/annals-project/annals/domain/recall"
)

// TestRank_OnlyHolder: similarity puts a turn above another, unless that one alone holds what was asked for. Turn 1 is
// the similar one.
func TestRank_OnlyHolder(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name, question string
		lines          []turnLine
		raised         bool
	}{
		{"a word and those that the other has", "the harbour lantern", []turnLine{
			{"Ana", "The harbour has a lantern", 0}, {"Ana", "The harbour is old", day}, {"Ana", "A harbour", 2 * day},
		}, true},
		{"a word, and not those that the other has", "the harbour lantern", []turnLine{
			{"Ana", "There is a lantern", 0}, {"Ana", "The harbour is old", day}, {"Ana", "A harbour", 2 * day},
		}, false},
		{"all words that any turn has", "the harbour lantern", []turnLine{
			{"Ana", "The harbour has a lantern", 0}, {"Ana", "It rains", day},
		}, true},
		{"a word, and the other has none", "the harbour lantern", []turnLine{
			{"Ana", "There is a lantern", 0}, {"Ana", "It rains", day}, {"Ana", "A harbour", 2 * day},
		}, false},
		{"an id, and the other has none", "the harbour 90712", []turnLine{
			{"Ana", "There is 90712", 0}, {"Ana", "It rains", day}, {"Ana", "A harbour", 2 * day},
		}, true},
		{"an id, and the other has the other word", "the harbour 90712", []turnLine{
			{"Ana", "There is 90712", 0},
			{"Ana", "It rains, says the man who was there for a long time, in a harbour", day},
			{"Ana", "A harbour", 2 * day},
		}, true},
		{"a turn that asks a question", "the harbour lantern", []turnLine{
			{"Ana", "Has the harbour a lantern?", 0}, {"Ana", "The harbour is old", day}, {"Ana", "A harbour", 2 * day},
		}, false},
		{"an id in a turn that asks a question", "the harbour 90712", []turnLine{
			{"Ana", "Is there 90712?", 0}, {"Ana", "It rains", day}, {"Ana", "A harbour", 2 * day},
		}, true},
		{"two holders", "the harbour lantern", []turnLine{
			{"Ana", "The harbour has a lantern", 0}, {"Ana", "The harbour is old", day}, {"Ana", "A lantern of the harbour", 2 * day},
		}, false},
		{"two holders of an id", "the harbour 90712", []turnLine{
			{"Ana", "There is 90712", 0}, {"Ana", "It rains", day}, {"Ana", "Here is 90712", 2 * day},
		}, false},
		{"the other holds it, too", "the harbour lantern", []turnLine{
			{"Ana", "The harbour has a lantern", 0}, {"Ana", "A lantern of the harbour", day},
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := recall.NewAnalyzer()
			question := a.Question(c.question, "", began)
			turns, weights := talk(a, question, c.lines)
			turns[1].Similarity, turns[1].Window = 8, 8
			without := a.Rank(question, weights, turns, "only holder")
			if without[1] <= without[0] {
				t.Fatalf("without the rule the similar turn is not above: %v", without)
			}
			with := a.Rank(question, weights, turns)
			if raised := with[0] > with[1]; raised != c.raised || with[1] != without[1] {
				t.Errorf("raised %v, want %v: %v, without the rule %v", raised, c.raised, with, without)
			}
			factor := 1.0
			explained := a.RankExplained(question, weights, turns).Turns[0]
			for _, f := range explained.Factors {
				if f.Name == "only holder" {
					factor = f.Value
				}
			}
			if factor > 1 != c.raised || explained.Score != with[0] {
				t.Errorf("explained as %+v", explained)
			}
		})
	}
}
