package score

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/recall"
)

// Ablated is recall without one signal, or with all of them if Without is empty.
type Ablated struct {
	Without string `json:"without"`
	Score   Score  `json:"score"`
}

func (a Ablated) name() string {
	if a.Without == "" {
		return "ranker alone"
	}
	return "without " + a.Without
}

// Ablate ranks all turns of each dialogue in this process, with all signals and then without one at
// a time. The service ranks only what its index proposes, and shows memories among it, so its
// figures differ slightly.
func Ablate(dialogues []Dialogue, signals ...string) ([]Ablated, error) {
	analyzer := recall.NewAnalyzer()
	scenes := make([]*scene, len(dialogues))
	for i, d := range dialogues {
		var err error
		if scenes[i], err = newScene(analyzer, d); err != nil {
			return nil, fmt.Errorf("%s: %w", d.ID, err)
		}
	}
	without := append([]string{""}, signals...)
	ablated := make([]Ablated, len(without))
	for i, signal := range without {
		var answers []Answer
		for _, s := range scenes {
			answers = append(answers, s.answers(signal)...)
		}
		ablated[i] = Ablated{signal, score(answers)}
	}
	return ablated, nil
}

// scene is a dialogue as the ranker sees it.
type scene struct {
	Dialogue
	analyzer *recall.Analyzer
	// passages are those of each turn; turns have no counts.
	passages [][]recall.Terms
	turns    []recall.Turn
	docs     int
	// frequencies counts the passages that contain a term.
	frequencies map[string]recall.Count
}

func newScene(analyzer *recall.Analyzer, d Dialogue) (*scene, error) {
	s := &scene{Dialogue: d, analyzer: analyzer, frequencies: map[string]recall.Count{}}
	for i, p := range d.DataPoints {
		at, err := time.Parse(time.RFC3339, p.Timestamp)
		if err != nil {
			return nil, fmt.Errorf("time of %s: %w", p.ID, err)
		}
		passages := analyzer.Passages(recall.Document{Content: p.Content, Label: p.Label, Author: p.Identity})
		for _, passage := range passages {
			s.docs++
			s.count(passage)
		}
		turn := recall.Turn{
			Size: int64(len(p.Content)), Author: p.Identity, OccurredAt: at, Before: recall.None, After: recall.None,
		}
		if i > 0 && recall.SameThread(s.turns[i-1].OccurredAt, at) {
			turn.Before, s.turns[i-1].After = i-1, i
		}
		s.passages, s.turns = append(s.passages, passages), append(s.turns, turn)
	}
	return s, nil
}

func (s *scene) count(passage recall.Terms) {
	seen := map[string]bool{}
	for _, t := range passage.Text {
		if !seen[t] {
			seen[t] = true
			c := s.frequencies[t]
			c.Text++
			s.frequencies[t] = c
		}
	}
	for _, t := range passage.Label {
		c := s.frequencies[t]
		c.Label++
		s.frequencies[t] = c
	}
}

// answers ranks the turns for each question that counts.
func (s *scene) answers(without string) []Answer {
	var answers []Answer
	for _, q := range s.Questions {
		if !q.Excluded {
			answers = append(answers, Answer{Question: q, Results: s.rank(q.Text, without)})
		}
	}
	return answers
}

func (s *scene) rank(text, without string) []client.RecallResult {
	question, weights, turns := s.asked(text)
	return s.results(s.analyzer.Rank(question, weights, turns, without))
}

// asked returns a question with the weights of its terms, and the turns by their best passages for it.
func (s *scene) asked(text string) (recall.Question, recall.Weights, []recall.Turn) {
	question := s.analyzer.Question(text, s.Asker, s.AskedAt)
	statistics := recall.Statistics{Docs: s.docs}
	for _, t := range question.Terms {
		statistics.Frequencies = append(statistics.Frequencies, s.frequencies[t.Text])
	}
	weights := statistics.Weights(question.Terms)
	turns := slices.Clone(s.turns)
	for i := range turns {
		best := 0.0
		if len(s.passages[i]) > 0 {
			turns[i].Traits = s.passages[i][0].Traits
		}
		for _, passage := range s.passages[i] {
			counts := recall.Counts(question.Terms, passage)
			if value := weights.Score(counts, len(passage.Text)); value > best {
				best, turns[i].Counts, turns[i].Length, turns[i].Traits = value, counts, len(passage.Text), passage.Traits
			}
		}
	}
	return question, weights, turns
}

// results returns the turns that have a score, best first.
func (s *scene) results(scores []float64) []client.RecallResult {
	var order []int
	for i, score := range scores {
		if score > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(scores[j], scores[i]) })
	results := make([]client.RecallResult, len(order))
	for place, i := range order {
		results[place] = client.RecallResult{
			Rank: place + 1, Content: s.DataPoints[i].Content,
			Sources: []client.RecallSource{{SourceID: s.DataPoints[i].ID}},
		}
	}
	return results
}
