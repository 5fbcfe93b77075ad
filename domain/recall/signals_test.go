package recall_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
