package recall_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/recall"
)

// placed makes a candidate that has some words of a question. Its id is its index.
func placed(score float64, day int, held recall.Words, change ...func(*recall.Placed)) recall.Placed {
	p := recall.Placed{
		Score: score, ByWords: score, OccurredAt: began.AddDate(0, 0, day), Held: held, Exactly: held != 0,
		SupersededBy: recall.None,
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func supersededBy(i int) func(*recall.Placed) { return func(p *recall.Placed) { p.SupersededBy = i } }
func spelled(p *recall.Placed)                { p.Spelled = true }
func wordForWord(p *recall.Placed)            { p.WordForWord = true }

// states is the statement of all texts that the tests compare.
func states(p *recall.Placed) { p.States = &recall.Statement{States: recall.States{Stems: 1}} }

func TestQuestion_Order(t *testing.T) {
	latest := recall.Question{AsksLatest: true}
	inJune := recall.Question{Periods: []comprehend.Period{{Start: began.AddDate(0, 0, 20), End: began.AddDate(0, 0, 30)}}}
	const none = recall.MoveNone
	for _, c := range []struct {
		name     string
		question recall.Question
		list     []recall.Placed
		want     []int
		moves    []recall.Move
	}{
		{name: "nothing"},
		{
			"ties",
			recall.Question{},
			[]recall.Placed{placed(1, 2, 1), placed(1, 1, 1), placed(1, 1, 1), placed(2, 3, 1), placed(1+1e-12, 4, 1)},
			[]int{3, 4, 0, 1, 2},
			[]recall.Move{none, none, none, none, none},
		},
		{
			"superseded",
			recall.Question{},
			[]recall.Placed{placed(9, 1, 1, supersededBy(2)), placed(8, 2, 1), placed(7, 3, 1), placed(6, 4, 1)},
			[]int{1, 2, 0, 3},
			[]recall.Move{none, none, recall.MoveSuperseded, none},
		},
		{
			"superseded by one above",
			recall.Question{},
			[]recall.Placed{placed(9, 1, 1), placed(8, 2, 1, supersededBy(0))},
			[]int{0, 1},
			[]recall.Move{none, none},
		},
		{
			"superseded one after the other",
			recall.Question{},
			[]recall.Placed{placed(9, 1, 1, supersededBy(1)), placed(8, 2, 1, supersededBy(2)), placed(7, 3, 1)},
			[]int{2, 1, 0},
			[]recall.Move{none, recall.MoveSuperseded, recall.MoveSuperseded},
		},
		{
			"superseded by one above that is superseded from below",
			recall.Question{},
			[]recall.Placed{placed(8, 1, 1, supersededBy(1)), placed(9, 2, 1, supersededBy(2)), placed(7, 3, 1)},
			[]int{2, 1, 0},
			[]recall.Move{none, recall.MoveSuperseded, recall.MoveSuperseded},
		},
		{
			"superseded, and alone in the period", inJune,
			[]recall.Placed{placed(9, 25, 1, supersededBy(1)), placed(8, 35, 1)},
			[]int{0, 1},
			[]recall.Move{none, none},
		},
		{
			"period", inJune,
			[]recall.Placed{placed(1, 1, 1), placed(0.9, 25, 1), placed(0.85, 40, 1), placed(0.7, 29, 3), placed(0.1, 30, 1)},
			[]int{1, 0, 3, 2, 4},
			[]recall.Move{none, recall.MovePeriod, none, recall.MovePeriod, none},
		},
		{
			"a later one is no better in a question for a period", inJune,
			[]recall.Placed{placed(1, 21, 1), placed(0.9, 25, 1)},
			[]int{0, 1},
			[]recall.Move{none, none},
		},
		{
			"latest", latest,
			[]recall.Placed{placed(1, 1, 1), placed(0.95, 3, 1), placed(0.9, 2, 1), placed(0.8, 4, 3), placed(0.7, 9, 1)},
			[]int{3, 1, 2, 0, 4},
			[]recall.Move{none, recall.MoveEarlier, recall.MoveEarlier, recall.MoveEarlier, none},
		},
		{
			"latest, with fewer words", latest,
			[]recall.Placed{placed(1, 1, 3), placed(0.95, 3, 1)},
			[]int{0, 1},
			[]recall.Move{none, none},
		},
		{
			"latest, without a word", latest,
			[]recall.Placed{placed(1, 1, 0), placed(0.95, 3, 0)},
			[]int{0, 1},
			[]recall.Move{none, none},
		},
		{
			"not asked for the latest",
			recall.Question{},
			[]recall.Placed{placed(1, 1, 1), placed(0.95, 3, 1)},
			[]int{0, 1},
			[]recall.Move{none, none},
		},
		{
			"restatements below what has a word",
			recall.Question{},
			[]recall.Placed{placed(9, 1, 1, states), placed(8, 2, 1, states), placed(7, 3, 0), placed(6, 4, 1), placed(5, 5, 0)},
			[]int{0, 2, 3, 1, 4},
			[]recall.Move{none, none, none, recall.MoveRestates, none},
		},
		{
			"a restatement does not go up",
			recall.Question{},
			[]recall.Placed{placed(9, 1, 1, states), placed(8, 2, 0), placed(7, 3, 1, states)},
			[]int{0, 1, 2},
			[]recall.Move{none, none, recall.MoveRestates},
		},
		{
			"spellings below restatements",
			recall.Question{},
			[]recall.Placed{placed(9, 1, 0, spelled), placed(8, 2, 1, states), placed(7, 3, 1, spelled), placed(6, 4, 1, states)},
			[]int{1, 2, 3, 0},
			[]recall.Move{none, none, recall.MoveRestates, recall.MoveSpelling},
		},
		{
			"spellings alone",
			recall.Question{},
			[]recall.Placed{placed(9, 1, 0, spelled), placed(8, 2, 0), placed(7, 2, 0, spelled)},
			[]int{1, 0, 2},
			[]recall.Move{none, recall.MoveSpelling, recall.MoveSpelling},
		},
		{
			"word for word",
			recall.Question{},
			[]recall.Placed{placed(9, 1, 1, states), placed(3, 2, 1, wordForWord, states), placed(8, 3, 1), placed(2, 4, 1, wordForWord)},
			[]int{1, 3, 2, 0},
			[]recall.Move{recall.MoveWordForWord, recall.MoveWordForWord, none, recall.MoveRestates},
		},
		{
			"word for word, superseded and earlier", latest,
			[]recall.Placed{placed(9, 1, 1, wordForWord, supersededBy(1)), placed(8, 2, 1), placed(7.9, 3, 1)},
			[]int{0, 2, 1},
			[]recall.Move{recall.MoveWordForWord, none, recall.MoveEarlier},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range c.list {
				c.list[i].SourceID = fmt.Sprint(i)
			}
			var order []int
			var moves []recall.Move
			for _, p := range c.question.Order(c.list) {
				order, moves = append(order, p.Candidate), append(moves, p.Move)
			}
			if diff := cmp.Diff(c.want, order); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.moves, moves); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestQuestion_OrderScores: scores follow the order, and those of a candidate keep their proportions.
func TestQuestion_OrderScores(t *testing.T) {
	var q recall.Question
	places := q.Order([]recall.Placed{
		placed(8, 1, 1, supersededBy(2)), placed(2, 2, 1, wordForWord), placed(4, 3, 1), placed(0, 4, 0),
	})
	want := []recall.Place{
		{Candidate: 1, Score: 8, Share: 4, Move: recall.MoveWordForWord},
		{Candidate: 2, Score: 4, Share: 1},
		{Candidate: 0, Score: 4, Share: 0.5, Move: recall.MoveSuperseded},
		{Candidate: 3, Share: 1},
	}
	if diff := cmp.Diff(want, places); diff != "" {
		t.Fatal(diff)
	}
	for _, c := range []struct{ own, score, want float64 }{{8, 8, 4}, {8, 6, 3}, {8, 0, 0}} {
		if got := places[2].Of(c.own, c.score); got != c.want {
			t.Errorf("a score of %v becomes %v, want %v", c.score, got, c.want)
		}
	}
	if got := places[0].Of(2, 1); got != 4 {
		t.Errorf("half of the best score becomes %v, want 4", got)
	}
}

// drawPlaced draws candidates.
func drawPlaced(t *rapid.T) []recall.Placed {
	list := make([]recall.Placed, rapid.IntRange(0, 12).Draw(t, "candidates"))
	for i := range list {
		held := recall.Words(rapid.IntRange(0, 7).Draw(t, "held"))
		list[i] = recall.Placed{
			Score:      float64(rapid.IntRange(0, 8).Draw(t, "score")) / 4,
			OccurredAt: began.Add(time.Duration(rapid.IntRange(0, 6).Draw(t, "days")) * 24 * time.Hour),
			SourceID:   fmt.Sprint(i), Held: held,
			Exactly: held != 0 || rapid.Bool().Draw(t, "by a memory"), Spelled: rapid.Bool().Draw(t, "spelled"),
			SupersededBy: rapid.IntRange(recall.None, len(list)-1).Draw(t, "superseded by"),
			WordForWord:  rapid.IntRange(0, 9).Draw(t, "word for word") == 0,
		}
		if list[i].SupersededBy == i {
			list[i].SupersededBy = recall.None
		}
		list[i].ByWords, list[i].HeldAnywhere = list[i].Score, list[i].Held
		list[i].Negates, list[i].IsQuestion = rapid.Bool().Draw(t, "negates"), rapid.Bool().Draw(t, "is a question")
		if next := rapid.IntRange(0, 2*len(list)).Draw(t, "next to"); held == 0 && next < i && len(list[next].NextTo) == 0 {
			list[i].NextTo = []int{next}
		}
		if stems := rapid.Uint64Range(0, 6).Draw(t, "stems"); stems > 0 {
			list[i].States = &recall.Statement{States: recall.States{Stems: stems}}
		}
	}
	return list
}

// Whatever the candidates are, each is placed once, scores do not rise, and what has no reason to be where it is stays
// above all that has a lower score, but for texts that are the question.
func TestQuestion_OrderProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawPlaced(t)
		question := recall.Question{
			AsksLatest: rapid.Bool().Draw(t, "asks latest"), Negates: rapid.Bool().Draw(t, "asks for what is not"), Content: 7,
		}
		if rapid.Bool().Draw(t, "names a period") {
			question.Periods = []comprehend.Period{{Start: began.AddDate(0, 0, 2), End: began.AddDate(0, 0, 4)}}
		}
		places := question.Order(list)
		seen := make([]bool, len(list))
		for i, p := range places {
			if seen[p.Candidate] {
				t.Fatalf("candidate %d twice", p.Candidate)
			}
			seen[p.Candidate] = true
			if i > 0 && p.Score > places[i-1].Score {
				t.Fatalf("place %d has score %v, the one before %v", i, p.Score, places[i-1].Score)
			}
			if p.Score > list[p.Candidate].Score && p.Move != recall.MoveWordForWord && p.Move != recall.MoveNegates {
				t.Fatalf("candidate %d gets score %v, its own is %v", p.Candidate, p.Score, list[p.Candidate].Score)
			}
			for _, above := range places[:i] {
				other := &list[above.Candidate]
				if p.Move == recall.MoveNone && !other.WordForWord && above.Move != recall.MoveNegates &&
					other.Compare(&list[p.Candidate]) > 0 && !question.Negates {
					t.Fatalf("candidate %d is below %d without a reason: %+v", p.Candidate, above.Candidate, places)
				}
			}
		}
		checkNextTo(t, list, places)
		if slices.Contains(seen, false) {
			t.Fatalf("not all of %d candidates have a place: %+v", len(list), places)
		}
	})
}

// checkNextTo checks that what is here only for a match next to it is below that match, unless that ends in a question,
// and below all that has the same words of the question. Restatements and other spellings are below everything.
func checkNextTo(t *rapid.T, list []recall.Placed, places []recall.Place) {
	place, move := make([]int, len(list)), make([]recall.Move, len(list))
	for i, p := range places {
		place[p.Candidate], move[p.Candidate] = i, p.Move
	}
	isLast := func(i int) bool { return move[i] == recall.MoveRestates || move[i] == recall.MoveSpelling }
	for i := range list {
		if len(list[i].NextTo) == 0 || list[i].WordForWord || isLast(i) {
			continue
		}
		match := list[i].NextTo[0]
		for other := range list {
			has := other != match && list[match].HeldAnywhere != 0 &&
				list[other].HeldAnywhere.Contains(list[match].HeldAnywhere)
			if is := other == match && !list[match].IsQuestion; (has || is) && len(list[other].NextTo) == 0 && !isLast(other) &&
				place[other] > place[i] {
				t.Fatalf("%d is next to %d, and above %d: %+v", i, match, other, places)
			}
		}
	}
}

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
