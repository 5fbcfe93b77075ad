package recall_test

import (
	"testing"
	"time"

	"github.com/annals-project/annals/domain/recall"
)

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
