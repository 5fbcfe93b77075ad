package recall_test

import (
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/recall"
)

// BenchmarkRank ranks 400 candidates, half of them neighbours of each other.
func BenchmarkRank(b *testing.B) {
	a := recall.NewAnalyzer()
	question := a.Question(
		"Which countries did Ana visit with her family in June, and when did they hike in the mountains?", "", began)
	var lines []turnLine
	for i := range 400 {
		lines = append(lines, turnLine{
			[]string{"Ana", "Ben", "Chris"}[i%3],
			"We went to Spain with the kids, the mountain was high and the hike long" + strings.Repeat(" and so on", i%7),
			time.Duration(i)*time.Minute + time.Duration(i/20)*24*time.Hour,
		})
	}
	turns, weights := talk(a, question, lines)
	b.ReportAllocs()
	for b.Loop() {
		a.Rank(question, weights, turns)
	}
}
