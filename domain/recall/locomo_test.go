package recall_test

import (
	"os"
	"path/filepath"
	"slices"
	"sort"
	"testing"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/locomo"
)

// TestDialogues ranks every turn for every question, without an engine and a budget: what analysis and ranking alone are worth.
// It reads the folder that ANNALS_TEST_LOCOMO names.
func TestDialogues(t *testing.T) {
	folder := os.Getenv("ANNALS_TEST_LOCOMO")
	if folder == "" {
		t.Skip("ANNALS_TEST_LOCOMO names no folder of dialogues")
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogue in %s: %v", folder, err)
	}
	analyzer := recall.NewAnalyzer()
	at10, at100, questions := 0.0, 0.0, 0
	for _, name := range files {
		ranked := ranker(t, analyzer, name)
		for _, q := range ranked.Questions {
			if q.Category == locomo.Adversarial {
				continue
			}
			questions++
			ranks := ranked.rank(q.Text)
			for _, turn := range q.Evidence {
				if rank := ranks[turn]; rank > 0 && rank <= 10 {
					at10 += 1 / float64(len(q.Evidence))
				}
				if rank := ranks[turn]; rank > 0 && rank <= 100 {
					at100 += 1 / float64(len(q.Evidence))
				}
			}
		}
	}
	at10, at100 = at10/float64(questions), at100/float64(questions)
	t.Logf("%d questions: R@10 %.3f, R@100 %.3f", questions, at10, at100)
	if at10 < 0.82 || at100 < 0.95 {
		t.Error("that is less than the signals together were worth")
	}
}

// ranking is a dialogue, analysed.
type ranking struct {
	locomo.Conversation
	analyzer *recall.Analyzer
	terms    []recall.Terms
	turns    []recall.Turn
	// frequencies is in how many turns a term stands.
	frequencies map[string]recall.Count
}

func ranker(t *testing.T, analyzer *recall.Analyzer, name string) *ranking {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := locomo.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	r := &ranking{Conversation: c, analyzer: analyzer, frequencies: map[string]recall.Count{}}
	for i, p := range c.DataPoints() {
		passages := analyzer.Passages(recall.Document{Content: p.Content, Label: p.Label, Author: p.Identity})
		if len(passages) != 1 {
			t.Fatalf("%d passages of %q", len(passages), p.Content)
		}
		terms := passages[0]
		r.terms = append(r.terms, terms)
		turn := recall.Turn{
			Length: len(terms.Text), Size: int64(len(p.Content)), Traits: recall.TraitsOf(p.Content), Author: p.Identity, OccurredAt: c.Turns[i].At,
			Before: recall.None, After: recall.None,
		}
		if i > 0 && recall.SameThread(r.turns[i-1].OccurredAt, turn.OccurredAt) {
			turn.Before, r.turns[i-1].After = i-1, i
		}
		r.turns = append(r.turns, turn)
		seen := map[string]bool{}
		for _, term := range terms.Text {
			if !seen[term] {
				seen[term] = true
				count := r.frequencies[term]
				count.Text++
				r.frequencies[term] = count
			}
		}
		for _, term := range terms.Label {
			count := r.frequencies[term]
			count.Label++
			r.frequencies[term] = count
		}
	}
	return r
}

// rank is the rank of every turn that a question finds, from 1.
func (r *ranking) rank(text string, without ...string) map[string]int {
	question := r.analyzer.Question(text, r.Turns[0].Speaker, r.AskedAt())
	statistics := recall.Statistics{Docs: len(r.turns)}
	for _, term := range question.Terms {
		statistics.Frequencies = append(statistics.Frequencies, r.frequencies[term.Text])
	}
	turns := slices.Clone(r.turns)
	for i := range turns {
		counts := recall.Counts(question.Texts(), r.terms[i])
		if slices.ContainsFunc(counts, func(c recall.Count) bool { return c != (recall.Count{}) }) {
			turns[i].Counts = counts
		}
	}
	scores := r.analyzer.Rank(question, statistics.Weights(), turns, without...)
	var found []int
	for i, score := range scores {
		if score > 0 {
			found = append(found, i)
		}
	}
	sort.SliceStable(found, func(a, b int) bool { return scores[found[a]] > scores[found[b]] })
	ranks := map[string]int{}
	for place, i := range found {
		ranks[r.Turns[i].ID] = place + 1
	}
	return ranks
}
