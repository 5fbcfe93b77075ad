package recall_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/recall"
)

// turnLine is one turn of a conversation.
type turnLine struct {
	by, text string
	at       time.Duration // since began
}

// began is when the conversations of these tests begin.
var began = time.Date(2025, 5, 12, 9, 0, 0, 0, time.UTC)

// talk makes turns to rank. Turns within an hour of each other are neighbours.
func talk(
	a *recall.Analyzer, question recall.Question, lines []turnLine,
) (turns []recall.Turn, weights recall.Weights) {
	statistics := recall.Statistics{Docs: 64, Frequencies: make([]recall.Count, len(question.Terms))}
	for i, l := range lines {
		passage := a.Passages(recall.Document{Content: l.text, Author: l.by})[0]
		turn := recall.Turn{
			Length: len(passage.Text), Size: int64(len(l.text)), Traits: recall.TraitsOf(l.text), Author: l.by,
			OccurredAt: began.Add(l.at),
			Before:     recall.None, After: recall.None,
		}
		counts := recall.Counts(question.Terms, passage)
		if slices.ContainsFunc(counts, func(c recall.Count) bool { return c != recall.Count{} }) {
			turn.Counts = counts
		}
		for t, c := range counts {
			statistics.Frequencies[t].Text += min(c.Text, 1)
			statistics.Frequencies[t].Label += c.Label
		}
		if i > 0 && recall.SameThread(turns[i-1].OccurredAt, turn.OccurredAt) {
			turn.Before, turns[i-1].After = i-1, i
		}
		turns = append(turns, turn)
	}
	return turns, statistics.Weights(question.Terms)
}

// TestSignals shows the effect of each signal: with all of them one line is above another, and by
// less without this one.
func TestSignals(t *testing.T) {
	day := 24 * time.Hour
	for _, c := range []struct {
		signal, question string
		above, below     int // indexes of lines
		lines            []turnLine
	}{
		{"words", "Who likes tea?", 0, 1, []turnLine{{"Ana", "Tea is what counts", 0}, {"Ana", "Rain is what counts", day}}},
		{"author", "What does Ana drink?", 1, 0, []turnLine{{"Ben", "A drink of tea", 0}, {"Ana", "A drink of tea", day}}},
		{"first person", "What does Ana drink?", 1, 0, []turnLine{{"Ana", "A drink of tea", 0}, {"Ana", "I drink tea", day}}},
		{"before", "What about the harbour?", 2, 0, []turnLine{{"Ana", "Ships were there", 0}, {"Ben", "The harbour is old", day}, {"Ana", "Ships were there", day + time.Minute}}},
		{"after", "What about the harbour?", 1, 0, []turnLine{{"Ana", "Ships were there", 0}, {"Ana", "Ships were there", day}, {"Ben", "The harbour is old", day + time.Minute}}},
		{"two before", "What about the harbour?", 3, 0, []turnLine{
			{"Ana", "Ships were there", 0}, {"Ben", "The harbour is old", day}, {"Ana", "Ships", day + time.Minute}, {"Ben", "Ships were there", day + 2*time.Minute},
		}},
		{"two after", "What about the harbour?", 1, 0, []turnLine{
			{"Ana", "Ships were there", 0}, {"Ben", "Ships were there", day}, {"Ana", "Ships", day + time.Minute}, {"Ben", "The harbour is old", day + 2*time.Minute},
		}},
		{"answers", "What about the harbour?", 3, 1, []turnLine{
			{"Ben", "The harbour is old.", 0}, {"Ana", "Ships were there", time.Minute}, {"Ben", "And the harbour?", day}, {"Ana", "Ships were there", day + time.Minute},
		}},
		{"conversation", "What about the old harbour?", 3, 0, []turnLine{
			{"Ana", "The harbour", 0},
			{"Ben", "The old one", day},
			{"Ana", "Nice", day + time.Minute},
			{"Ben", "The harbour", day + 2*time.Minute},
			{"Ana", "Ships", day + 3*time.Minute},
		}},
		{"context overlap", "What about the old harbour?", 3, 0, []turnLine{
			{"Ana", "The harbour", 0},
			{"Ben", "The old one", day},
			{"Ana", "Nice", day + time.Minute},
			{"Ben", "The harbour", day + 2*time.Minute},
		}},
		{"time evidence", "When was the launch?", 1, 0, []turnLine{{"Ana", "The launch was fine", 0}, {"Ana", "The launch was yesterday", day}}},
		{"name evidence", "Who built the ship?", 1, 0, []turnLine{{"Ana", "The ship was built by somebody", 0}, {"Ana", "The ship was built by Brunel", day}}},
		{"date", "What happened to the ship on 20 June 2025?", 1, 0, []turnLine{{"Ana", "The ship left", 0}, {"Ana", "The ship left", 40 * day}}},
		{"is question", "Where is the ship?", 1, 0, []turnLine{{"Ana", "The ship?", 0}, {"Ana", "The ship.", day}}},
		{"size", "Where is the ship?", 1, 0, []turnLine{{"Ana", "The ship is here" + strings.Repeat(" …", 400), 0}, {"Ana", "The ship is here", day}}},
		{"spread", "In what order did the ship leave?", 2, 1, []turnLine{
			{"Ana", "The ship, the ship left", 0},
			{"Ana", "The ship left again", 2 * day},
			{"Ana", "Also the ship left", 4 * day},
			{"Ana", "The ship, the ship left", 2*day + time.Minute},
		}},
		{"label", "Where is Ben?", 0, 1, []turnLine{{"Ben", "Ships were there", 0}, {"Ana", "Ships were there", day}}},
	} {
		t.Run(c.signal, func(t *testing.T) {
			a := recall.NewAnalyzer()
			question := a.Question(c.question, "", began.Add(60*day))
			turns, weights := talk(a, question, c.lines)
			with := a.Rank(question, weights, turns)
			if with[c.above] <= with[c.below] {
				t.Errorf("with it: %v", with)
			}
			without := a.Rank(question, weights, turns, c.signal)
			if without[c.above]-without[c.below] >= with[c.above]-with[c.below] {
				t.Errorf("with it: %v, without it: %v", with, without)
			}
		})
	}
}

func TestRank_AskerIsI(t *testing.T) {
	a := recall.NewAnalyzer()
	for text, above := range map[string]int{
		"What did I drink?": 1, "What did Ben drink, I wonder?": 0,
		"What did one drink?": 0,
	} {
		question := a.Question(text, "Ana", began)
		turns, weights := talk(a, question, []turnLine{
			{"Ben", "A drink of tea", 0},
			{"Ana", "A drink of tea", 48 * time.Hour},
		})
		scores := a.Rank(question, weights, turns)
		if scores[above] < scores[1-above] || (above == 1) != (scores[1] > scores[0]) {
			t.Errorf("%q: %v", text, scores)
		}
	}
}

func TestQuestion_AsksOrder(t *testing.T) {
	a := recall.NewAnalyzer()
	for text, want := range map[string]bool{
		"Give me a Timeline of the trip": true, "In what order did I mention the features?": true, "List the order in which I raised them.": true,
		"What did Ana order in the shop?": false, "What must be done in order to leave?": false, "Where is the ship?": false,
	} {
		if got := a.Question(text, "Ana", began).AsksOrder; got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestRank_OtherSpellings(t *testing.T) {
	a := recall.NewAnalyzer()
	question := a.Question("Which instrument is it?", "", began)
	question.Terms = append(question.Terms, recall.Term{Text: "violin", Kind: recall.Spelling, Share: 0.4})
	turns, weights := talk(a, question, []turnLine{{"Ana", "It is a violin", 0}, {
		"Ana", "It is an instrument",
		48 * time.Hour,
	}, {"Ana", "It is a ship", 96 * time.Hour}})
	scores := a.Rank(question, weights, turns)
	if !(scores[1] > scores[0] && scores[0] > scores[2]) {
		t.Errorf("another spelling is less than the word and more than another word: %v", scores)
	}
}

func TestQuestion(t *testing.T) {
	a := recall.NewAnalyzer()
	for _, c := range []struct {
		text   string
		answer recall.Traits
	}{
		{"When did Ana leave?", recall.TimeEvidence},
		{"In what year did Ana leave?", recall.TimeEvidence},
		{"What year did Ana leave?", recall.TimeEvidence},
		{"And since when is that?", recall.TimeEvidence},
		{"For how long was Ana there?", recall.TimeEvidence},
		{"Who was it?", recall.NameEvidence},
		{"What is the name of the ship?", recall.NameEvidence},
		{"What is it?", 0},
		{"Whenever it rains", 0},
		{"", 0},
	} {
		if got := a.Question(c.text, "", began).Answer; got != c.answer {
			t.Errorf("%q asks for %b, want %b", c.text, got, c.answer)
		}
	}
	question := a.Question("What did Ana do in June and on 3 May 2024?", "", began)
	want := []comprehend.Period{
		{Start: time.Date(2024, 6, 1, 0, 0, 0, 0, time.UTC), End: time.Date(2024, 7, 1, 0, 0, 0, 0, time.UTC)},
		{Start: time.Date(2024, 5, 3, 0, 0, 0, 0, time.UTC), End: time.Date(2024, 5, 4, 0, 0, 0, 0, time.UTC)},
	}
	if diff := cmp.Diff(want, question.Periods); diff != "" {
		t.Error(diff)
	}
}

func TestQuestion_Bounded(t *testing.T) {
	a := recall.NewAnalyzer()
	question := a.Question(strings.Repeat(
		"family food country sport animal pet event activity music art emotion health clothes ", 5), "", began)
	own, stems := 0, 0
	seen := map[string]bool{}
	for i, term := range question.Terms {
		if seen[term.Text] {
			t.Errorf("%q twice", term.Text)
		}
		seen[term.Text] = true
		switch term.Kind {
		case recall.Whole:
			own++
		case recall.Stem:
			stems++
		}
		if term.For >= own || (term.For == i) != (term.Kind == recall.Whole) {
			t.Errorf("%q belongs to no word of the query", term.Text)
		}
	}
	if own != 13 || stems == 0 || stems > 8*own {
		t.Errorf("%d words and %d stems", own, stems)
	}
}

func TestTraits(t *testing.T) {
	for text, want := range map[string]recall.Traits{
		"":                             0,
		"It rains":                     0,
		"It rains. Heavily":            0,
		"I think so":                   recall.FirstPerson,
		"I’ve been":                    recall.FirstPerson,
		"i'm here":                     recall.FirstPerson,
		"Are you sure?":                recall.SecondPerson | recall.IsQuestion,
		"Are you sure?\n[a photo]":     recall.SecondPerson | recall.IsQuestion,
		"So it is “sure?”":             recall.IsQuestion,
		"Sure? It is":                  0,
		"It was in 2019":               recall.TimeEvidence | recall.NumberEvidence,
		"It was 12":                    recall.NumberEvidence,
		"on Tuesday":                   recall.TimeEvidence,
		"twelve of them":               recall.NumberEvidence,
		"They saw Paris":               recall.NameEvidence,
		"A Paris":                      recall.NameEvidence,
		"Paris is big":                 0,
		"Вчера был Париж":              recall.NameEvidence,
		strings.Repeat("long", 40):     0,
		"\xff\xfe broken":              0,
		"It was Rescheduled":           recall.NameEvidence,
		"no longer so":                 recall.Negates,
		"They like New York":           recall.NameEvidence,
		"for yourselves":               recall.SecondPerson,
		"in september":                 recall.TimeEvidence,
		"Then we’d go":                 recall.FirstPerson,
		"as you'll see":                recall.SecondPerson,
		"They saw Ana's dog":           recall.NameEvidence,
		"what today's like":            recall.TimeEvidence,
		"Look:\nParis":                 0,
		"last year, we met Ana twice.": recall.TimeEvidence | recall.FirstPerson | recall.NameEvidence | recall.NumberEvidence,
	} {
		if got := recall.TraitsOf(text); got != want {
			t.Errorf("%q has %07b, want %07b", text, got, want)
		}
	}
}

// Rank is the factor of a turn times the weighted sum of its features.
func TestFeatures_MakeTheScore(t *testing.T) {
	a := recall.NewAnalyzer()
	question := a.Question("When did Ana buy the kayak?", "Ben", began)
	turns, weights := talk(a, question, []turnLine{
		{"Ana", "I bought a kayak in June.", 0}, {"Ben", "Which kayak?", time.Minute}, {"Ana", strings.Repeat("The red one. ", 90), time.Hour},
	})
	features := a.Features(question, weights, turns)
	for i, score := range a.Rank(question, weights, turns) {
		sum := 0.0
		for j, w := range recall.SignalWeights() {
			if w.Weight <= 0 {
				t.Errorf("signal %q has no weight", w.Signal)
			}
			sum += w.Weight * features[i].Values[j]
		}
		if got := sum * features[i].Factor; got != score || i < 2 && score == 0 {
			t.Errorf("turn %d: the features make %v, its score is %v", i, got, score)
		}
	}
}

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
