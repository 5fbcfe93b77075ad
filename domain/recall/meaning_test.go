package recall_test

import (
	"testing"
	"time"

	"github.com/annals-project/annals/domain/recall"
)

// What is near in meaning adds to what words say, is found where they say nothing, and lowers nobody.
func TestMeaning(t *testing.T) {
	a := recall.NewAnalyzer()
	question := a.Question("Who likes tea?", "", began)
	turns, weights := talk(a, question, []said{{"Ana", "Tea is what counts", 0}, {"Ana", "Tea is what counts", 48 * time.Hour}, {"Ana", "Hot leaves in water", 96 * time.Hour}, {"Ana", "Rain", 144 * time.Hour}})
	before := a.Rank(question, weights, turns)
	if before[0] != before[1] || before[2] != 0 {
		t.Fatalf("scores %v", before)
	}
	turns[1].Meaning, turns[2].Meaning, turns[3].Meaning = 1, 2, -3
	after := a.Rank(question, weights, turns)
	if after[0] != before[0] || after[1] <= before[1] || after[2] <= 0 || after[2] >= after[0] || after[3] != before[3] {
		t.Errorf("scores %v, without meaning %v", after, before)
	}
	if without := a.Rank(question, weights, turns, "meaning"); without[1] != before[1] || without[2] != before[2] {
		t.Errorf("left out, it counts: %v", without)
	}
	// A question none of whose words was ever used is answered by meaning alone.
	unknown := a.Question("Xylophone?", "", began)
	turns, _ = talk(a, unknown, []said{{"Ana", "She plays the mallets", 0}})
	turns[0].Meaning = 1
	if scores := a.Rank(unknown, recall.Statistics{Frequencies: make([]recall.Count, len(unknown.Terms))}.Weights(), turns); scores[0] <= 0 {
		t.Errorf("score %v", scores)
	}
}
