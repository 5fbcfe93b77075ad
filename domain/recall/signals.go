package recall

import (
	"math"
	"time"
)

// signal is one thing that a turn is ranked by. The score of a turn is the sum of what its signals say, each times its weight.
type signal struct {
	name   string
	weight float64
	of     func(s *scene, turn int) float64
}

// signals are all of them. The weights are rounded from those that ranked three dialogues of two people best; leaving one out costs
// what the page "How recall ranks" of the documentation says.
var signals = []signal{
	{"words", 1, func(s *scene, turn int) float64 { return s.base[turn] }},
	{"label", 0.5, label},
	{"author", 0.7, author},
	{"first person", 0.1, firstPerson},
	{"before", 0.5, func(s *scene, turn int) float64 { return s.at(s.base, turn, -1) }},
	{"after", 0.4, func(s *scene, turn int) float64 { return s.at(s.base, turn, 1) }},
	{"two before", 0.25, func(s *scene, turn int) float64 { return s.at(s.base, turn, -2) }},
	{"two after", 0.2, func(s *scene, turn int) float64 { return s.at(s.base, turn, 2) }},
	{"answers", 0.1, answers},
	{"together", 0.1, together},
	{"conversation", 0.15, func(s *scene, turn int) float64 { return s.threads[turn] }},
	{"time told", 0.6, told(TellsTime)},
	{"number told", 0.4, told(TellsNumber)},
	{"name told", 0.2, told(TellsName)},
	{"date", 2.5, date},
	{"meaning", MeaningWeight, meaning},
}

// MeaningWeight is what a standard deviation of nearness in meaning counts, in weights of a usual term.
const MeaningWeight = 0.25

// askedOff is the share that a turn loses that asks instead of telling.
const askedOff = 0.2

// SizeShare is the share of its score that a document keeps that takes the room of others in a page: a long one must say more than a
// short one. One of up to 500 bytes keeps all of it.
func SizeShare(bytes int64) float64 {
	const off, from, least = 0.15, 500, 0.3
	return max(least, 1-off*math.Log2(max(1, float64(bytes)/from)))
}

// Rank scores turns for a question: the higher, the sooner it is shown; 0 is nothing in common. Weights are those of the question's
// terms. Without names a signal by its name in signals, "related words", "asks" or "size", to leave out; it is for measurements.
func (a *Analyzer) Rank(q Question, weights Weights, turns []Turn, without ...string) []float64 {
	off := make(map[string]bool, len(without))
	for _, name := range without {
		off[name] = true
	}
	s := newScene(a, q, weights, turns, off["related words"])
	scores := make([]float64, len(turns))
	for i := range turns {
		for _, signal := range signals {
			if !off[signal.name] {
				scores[i] += signal.weight * signal.of(s, i)
			}
		}
		if turns[i].Traits.Has(Asks) && !off["asks"] {
			scores[i] *= 1 - askedOff
		}
		if !off["size"] {
			scores[i] *= SizeShare(turns[i].Size)
		}
	}
	return scores
}

// ownWords is BM25 of the words that were asked for, and of the best related one for each; or the key to the turn, where that says more.
func ownWords(s *scene, turn int) float64 {
	t := &s.turns[turn]
	if t.Counts == nil {
		return t.Key
	}
	norm := bm25K1 * (1 - bm25B + bm25B*float64(t.Length)/average)
	gain := func(term int) float64 {
		tf := float64(t.Counts[term].Text)
		if tf == 0 {
			return 0
		}
		return s.weights[term].text * tf * (bm25K1 + 1) / (tf + norm)
	}
	score := 0.0
	for _, term := range s.content {
		score += gain(term)
	}
	if s.literal {
		return max(score, t.Key)
	}
	best := s.related
	clear(best)
	for term := len(best); term < len(s.question.Terms); term++ {
		of := s.question.Terms[term].For
		value := gain(term)
		if asked := s.weights[of].text; asked > 0 && s.weights[term].text > asked {
			value *= asked / s.weights[term].text // a related word says no more than the one that was asked for
		}
		best[of] = max(best[of], value)
	}
	for _, term := range s.content {
		score += RelatedWeight * best[term]
	}
	return max(score, t.Key)
}

// label is the words that were asked for in the label.
func label(s *scene, turn int) float64 {
	t := &s.turns[turn]
	if t.Counts == nil {
		return 0
	}
	score := 0.0
	for _, term := range s.content {
		if t.Counts[term].Label > 0 {
			score += s.weights[term].label
		}
	}
	return score
}

// author is whether the one whom the question names wrote the turn.
func author(s *scene, turn int) float64 {
	if s.named == "" || s.turns[turn].Author != s.named {
		return 0
	}
	return s.usual
}

// firstPerson is whether the one whom the question names speaks of themselves.
func firstPerson(s *scene, turn int) float64 {
	if !s.turns[turn].Traits.Has(FirstPerson) {
		return 0
	}
	return author(s, turn)
}

// answers is whether the turn comes right after one that asks for what the question asks for.
func answers(s *scene, turn int) float64 {
	before := s.turns[turn].Before
	if before == None || !s.turns[before].Traits.Has(Asks) {
		return 0
	}
	return s.base[before]
}

// together is how much of the question the turn and its neighbours hold together.
func together(s *scene, turn int) float64 {
	score := 0.0
	for _, term := range s.content {
		for steps := -2; steps <= 2; steps++ {
			if near := s.walk(turn, steps); near != None && s.count(near, term) > 0 {
				score += s.weights[term].text
				break
			}
		}
	}
	return score
}

// told is whether the turn tells what the question wants to know.
func told(kind Traits) func(s *scene, turn int) float64 {
	return func(s *scene, turn int) float64 {
		if s.question.Answer != kind || !s.turns[turn].Traits.Has(kind) {
			return 0
		}
		return s.usual
	}
}

// People tell of a day on that day or in the days after it.
const (
	toldBefore = 24 * time.Hour
	toldWithin = 10 * 24 * time.Hour
)

// date is whether the turn was said when one speaks of the time that the question names.
func date(s *scene, turn int) float64 {
	at := s.turns[turn].OccurredAt
	for _, p := range s.question.Periods {
		if !at.Before(p.Start.Add(-toldBefore)) && !at.After(p.End.Add(toldWithin)) {
			return s.usual
		}
	}
	return 0
}

// meaning is how near the turn is to the question in meaning, where a model says it: it adds to what words say and takes nothing away.
func meaning(s *scene, turn int) float64 {
	value := max(0, s.turns[turn].Meaning)
	if s.usual == 0 { // nobody ever used these words
		return value
	}
	return value * s.usual
}

// Signals are the names that Rank can leave out.
func Signals() []string {
	var names []string
	for _, s := range signals {
		names = append(names, s.name)
	}
	return append(names, "related words", "asks", "size")
}
