package recall_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/recall"
)

// ranked counts the turns that have a score for a question: the first one has its words, others a common one of them.
func ranked(t *testing.T, text string, others int) (first bool, rest int) {
	t.Helper()
	a := recall.NewAnalyzer()
	question := a.Question(text, "", began)
	lines := []turnLine{{"Ana", "The lighthouse keeper painted the lantern room in spring", 0}}
	for n := range others {
		lines = append(lines, turnLine{
			"Ana", fmt.Sprintf("In spring we saw number %d, and then went on for a long while without any more to say of it", n),
			time.Duration(n+1) * 48 * time.Hour,
		})
	}
	turns, weights := talk(a, question, lines)
	for i, score := range a.Rank(question, weights, turns) {
		switch {
		case score > 0 && i == 0:
			first = true
		case score > 0:
			rest++
		}
	}
	return first, rest
}

// What shares only a common word with the question is dropped, but for the best sixteen.
func TestRank_Floor(t *testing.T) {
	const question = "Which lighthouse keeper painted the lantern room in spring?"
	if first, rest := ranked(t, question, 40); !first || rest != 15 {
		t.Errorf("found %v, with %d that have one common word; want the best sixteen together", first, rest)
	}
	if first, rest := ranked(t, question, 15); !first || rest != 15 {
		t.Errorf("of sixteen: found %v, with %d others", first, rest)
	}
	// A question of one word is answered by all that have it.
	if first, rest := ranked(t, "spring", 40); !first || rest != 40 {
		t.Errorf("by the word alone: found %v, with %d others", first, rest)
	}
	// Of a question whose other words nobody used, what has the one word is found.
	unknown := "Please elaborate thoroughly regarding zeppelins, submarines, volcanoes, glaciers and the lighthouse"
	if first, _ := ranked(t, unknown, 40); !first {
		t.Error("not found by the one word that was used")
	}
}

// Words that nobody has do not raise the floor: what has the only word that is known stays, however many others a
// question has.
func TestRank_FloorOfUnknownWords(t *testing.T) {
	for _, question := range []string{"spring", "spring zeppelins", "zeppelins, submarines, volcanoes, glaciers, quarries, spring"} {
		if first, rest := ranked(t, question, 40); !first || rest != 40 {
			t.Errorf("%q finds the first: %v, and %d of 40 others", question, first, rest)
		}
	}
	if first, rest := ranked(t, "zeppelins, submarines", 40); first || rest != 0 {
		t.Errorf("by unknown words: found %v, with %d others", first, rest)
	}
}

// Without the floor everything with a word of the question has a score.
func TestRank_WithoutFloor(t *testing.T) {
	a := recall.NewAnalyzer()
	question := a.Question("Which lighthouse keeper painted the lantern room in spring?", "", began)
	var lines []turnLine
	for n := range 40 {
		lines = append(lines, turnLine{"Ana", "A long spring day with many things to do and to see", time.Duration(n) * 48 * time.Hour})
	}
	turns, weights := talk(a, question, append(lines, turnLine{"Ben", "The lighthouse keeper painted the lantern", 0}))
	count := func(without ...string) (n int) {
		for _, score := range a.Rank(question, weights, turns, without...) {
			if score > 0 {
				n++
			}
		}
		return n
	}
	if all := count("floor"); all != 41 {
		t.Errorf("%d turns have a score", all)
	}
	if kept := count(); kept >= 41 {
		t.Errorf("%d turns pass the floor", kept)
	}
}
