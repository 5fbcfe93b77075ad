package recall

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// signal is one part of a score. The score of a turn is the sum of its signals, each times its
// weight.
type signal struct {
	name   string
	of     func(s *scene, turn int) float64
	weight float64
	// meaning reports that it is about embeddings.
	meaning bool
}

// signals are all of them. Each has its weight in signalWeights.
var signals = weighted([]signal{
	{name: "words", of: func(s *scene, turn int) float64 { return s.base[turn] }},
	{name: "label", of: label},
	{name: "author", of: author},
	{name: "first person", of: firstPerson},
	{name: "before", of: func(s *scene, turn int) float64 { return s.at(s.base, turn, -1) }},
	{name: "after", of: func(s *scene, turn int) float64 { return s.at(s.base, turn, 1) }},
	{name: "two before", of: func(s *scene, turn int) float64 { return s.at(s.base, turn, -2) }},
	{name: "two after", of: func(s *scene, turn int) float64 { return s.at(s.base, turn, 2) }},
	{name: "answers", of: answers},
	{name: "context overlap", of: contextOverlap},
	{name: "conversation", of: func(s *scene, turn int) float64 { return s.threads[turn] }},
	{name: "time evidence", of: evidence(TimeEvidence)},
	{name: "name evidence", of: evidence(NameEvidence)},
	{name: "date", of: date},
	{name: "semantic", meaning: true, of: similarity},
	{name: "semantic window", meaning: true, of: windowSimilarity},
})

// signalWeights are in the form in which "annals-bench recall locomo FILE… --fit" prints fitted ones. They are about
// the mean of those that were set by hand and of those that were fitted, to dialogues of two people and to chats with
// an assistant; the page "How recall ranks" of the documentation shows what each is worth.
var signalWeights = map[string]float64{
	"words":           1,
	"label":           0.5,
	"author":          0.8,
	"first person":    0.3,
	"before":          0.3,
	"after":           0.25,
	"two before":      0.25,
	"two after":       0.1,
	"answers":         0.4,
	"context overlap": 0.25,
	"conversation":    0.1,
	"time evidence":   1.2,
	"name evidence":   0.4,
	"date":            3,
	"semantic":        SemanticWeight,
	"semantic window": WindowWeight,
}

func weighted(list []signal) []signal {
	for i := range list {
		list[i].weight = signalWeights[list[i].name]
	}
	return list
}

// SemanticWeight and WindowWeight are the weights of one standard deviation of similarity, of a data point and of its
// window, in weights of a usual term.
const (
	SemanticWeight = 0.35
	WindowWeight   = 0.3
)

// questionDiscount is the share of its score that a question loses.
const questionDiscount = 0.2

// SizeShare is the share of its score that a document of so many bytes keeps, since it takes the
// room of others. A document of up to 500 bytes keeps all of it.
func SizeShare(bytes int64) float64 {
	const off, from, least = 0.15, 500, 0.3
	return max(least, 1-off*math.Log2(max(1, float64(bytes)/from)))
}

// Weight is the weight of a signal.
type Weight struct {
	Signal string  `json:"signal"`
	Weight float64 `json:"weight"`
}

// SignalWeights are the weights that Rank uses, in the order of the values of Features.
func SignalWeights() []Weight {
	weights := make([]Weight, len(signals))
	for i, s := range signals {
		weights[i] = Weight{s.name, s.weight}
	}
	return weights
}

// Features are what Rank makes the score of one turn of: its factor, times the sum of the values, each times
// the weight of its signal.
type Features struct {
	Values []float64
	Factor float64
}

// Features returns those of each turn, to fit weights.
func (a *Analyzer) Features(q Question, weights Weights, turns []Turn) []Features {
	s := newScene(a, q, weights, turns)
	features := make([]Features, len(turns))
	for i := range turns {
		features[i] = Features{Values: make([]float64, len(signals)), Factor: turns[i].factor(nil)}
		for j, signal := range signals {
			features[i].Values[j] = signal.of(s, i)
		}
	}
	return features
}

// factors are what the score of a turn is multiplied by.
var factors = []struct {
	name string
	of   func(t *Turn) float64
}{
	{"is question", func(t *Turn) float64 {
		if t.Traits.Has(IsQuestion) {
			return 1 - questionDiscount
		}
		return 1
	}},
	{"size", func(t *Turn) float64 { return SizeShare(t.Size) }},
}

// factor is the product of all factors of a turn.
func (t *Turn) factor(off map[string]bool) float64 {
	product := 1.0
	for _, f := range factors {
		if !off[f.name] {
			product *= f.of(t)
		}
	}
	return product
}

// Rank scores turns for a question: the higher, the better; 0 has nothing in common with it.
// Weights are those of the question's terms. Without lists names of Signals to leave out, for
// measurements.
func (a *Analyzer) Rank(q Question, weights Weights, turns []Turn, without ...string) []float64 {
	scores, _ := a.RankByWords(q, weights, turns, without...)
	return scores
}

// RankByWords is Rank, and the scores of the turns without their similarity.
func (a *Analyzer) RankByWords(
	q Question, weights Weights, turns []Turn, without ...string,
) (scores, byWords []float64) {
	return newScene(a, q, weights, turns).rank(leftOut(without), nil)
}

func leftOut(names []string) map[string]bool {
	off := make(map[string]bool, len(names))
	for _, name := range names {
		off[name] = true
	}
	return off
}

// rank scores the turns, with their similarity and without. It notes in explained, unless that is nil, what makes the
// score of each.
func (s *scene) rank(off map[string]bool, explained []ExplainedTurn) (scores, byWords []float64) {
	scores, byWords = make([]float64, len(s.turns)), make([]float64, len(s.turns))
	meanings := make([]float64, len(s.turns))
	for i := range s.turns {
		for _, signal := range signals {
			if off[signal.name] {
				continue
			}
			value := signal.of(s, i)
			scores[i] += signal.weight * value
			if signal.meaning {
				meanings[i] += signal.weight * value
			}
			if explained != nil {
				explained[i].addSignal(signal, value)
			}
		}
		if least := leastShare * s.base[i]; scores[i] < least && !off[leastName] {
			if explained != nil {
				explained[i].addSignal(signal{name: leastName, weight: 1}, least-scores[i])
			}
			scores[i] = least
		}
		byWords[i] = (scores[i] - meanings[i]) * s.turns[i].factor(off)
		scores[i] *= s.turns[i].factor(off)
	}
	if !off[onlyHolder] {
		s.raise(scores, byWords, explained)
	}
	switch {
	case !s.question.AsksOrder && !off[Floor]:
		s.floor(scores, byWords, meanings, explained)
	case s.question.AsksOrder && !off[spreadName]:
		s.spread(scores, explained)
	}
	return scores, byWords
}

// label scores the question's own words in the label.
func label(s *scene, turn int) float64 {
	t := &s.turns[turn]
	if t.Counts == nil {
		return 0
	}
	score := 0.0
	for i, c := range t.Counts {
		if term := s.question.Terms[i]; c.Label > 0 && term.Kind <= Spelling && s.isContent.Has(term.For) {
			score += term.Share * s.weights[i].label
		}
	}
	return score
}

// author is 1 usual weight if the author that the question names or addresses wrote the turn.
func author(s *scene, turn int) float64 {
	by := s.turns[turn].Author
	switch {
	case s.named != "" && by == s.named:
		return s.usual
	case s.other != "" && by != "" && by != s.other:
		return otherAuthor * s.usual
	default:
		return 0
	}
}

// otherAuthor is what it counts that not the asker wrote the turn, if the question asks what "you" said.
const otherAuthor = 2

// firstPerson is that of an author who speaks of themselves.
func firstPerson(s *scene, turn int) float64 {
	if !s.turns[turn].Traits.Has(FirstPerson) {
		return 0
	}
	return author(s, turn)
}

// answers is the score of the turn before, if that is a question.
func answers(s *scene, turn int) float64 {
	before := s.turns[turn].Before
	if before == None || !s.turns[before].Traits.Has(IsQuestion) {
		return 0
	}
	return s.base[before]
}

// contextOverlap is how much of the question the turn and its neighbours contain together.
func contextOverlap(s *scene, turn int) float64 {
	score, around := 0.0, [5]int{}
	for i := range around {
		around[i] = s.neighbour(turn, i-2)
	}
	for _, word := range s.content {
		for _, near := range around {
			if near != None && s.hasWord(near, word) {
				score += s.weights[word].text
				break
			}
		}
	}
	return score
}

// evidence is 1 usual weight if the turn has the trait that the question wants.
func evidence(kind Traits) func(s *scene, turn int) float64 {
	return func(s *scene, turn int) float64 {
		if s.question.Answer != kind || !s.turns[turn].Traits.Has(kind) {
			return 0
		}
		return s.usual
	}
}

// People mention a day on that day or in the days after it. A turn of these days counts nearShare of one of the day.
const (
	mentionBefore = 24 * time.Hour
	mentionAfter  = 10 * 24 * time.Hour
	nearShare     = 2. / 3
)

// date is 1 usual weight for a turn that occurred within a period that the question names, and nearShare of it if it
// occurred when people mention that period.
func date(s *scene, turn int) float64 {
	at, value := s.turns[turn].OccurredAt, 0.0
	for _, p := range s.question.Periods {
		switch {
		case !at.Before(p.Start) && at.Before(p.End):
			return s.usual
		case !at.Before(p.Start.Add(-mentionBefore)) && !at.After(p.End.Add(mentionAfter)):
			value = nearShare * s.usual
		}
	}
	return value
}

// leastShare is the share of the score of its words that a turn keeps however far its embedding is from the question's,
// leastName the name of what it is given for that.
const (
	leastShare = 0.05
	leastName  = "least"
)

// spreadShare is the share of its score that a turn keeps for each better one of its conversation, down to that of
// the spreadMost'th.
const (
	spreadShare = 0.8
	spreadMost  = 20
)

// spreadName is the name of spread as a signal.
const spreadName = "spread"

// spread lets the best turns of each conversation come before the next of any of them.
func (s *scene) spread(scores []float64, explained []ExplainedTurn) {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	before := make([]int, len(scores)) // by conversation
	for _, i := range order {
		thread := s.threadOf[i]
		share := math.Pow(spreadShare, float64(min(before[thread], spreadMost)))
		scores[i] *= share
		before[thread]++
		if explained != nil {
			explained[i].addFactor(spreadName, share)
		}
	}
}

func similarity(s *scene, turn int) float64 { return s.inUsual(s.turns[turn].Similarity) }

func windowSimilarity(s *scene, turn int) float64 { return s.inUsual(s.turns[turn].Window) }

// inUsual converts a similarity to the unit of signals without terms.
func (s *scene) inUsual(similarity float64) float64 {
	if s.usual == 0 { // no text contains these words
		return similarity
	}
	return similarity * s.usual
}

// Signals are the names that Rank can leave out.
func Signals() []string {
	var names []string
	for _, s := range signals {
		names = append(names, s.name)
	}
	for _, f := range factors {
		names = append(names, f.name)
	}
	return append(names, leastName, onlyHolder, Floor, spreadName)
}

// The floor drops what has little in common with the question: a recall on something that was never stored returns
// little. A turn stays if its score without embeddings is a share of what a turn with each word of the question would
// score by these words: floorShare if it has one of them, floorShareNear if only its conversation speaks for it. It
// also stays if embeddings add floorMeaning usual weights. At most floorWords words count, the rarest, so that a long
// question does not drop everything; and the best floorKeeps turns stay, since a question may have many words that
// nobody used. A question for an order of events has no floor: it asks for more than its words.
const (
	floorShare     = 0.12
	floorShareNear = 0.1
	floorMeaning   = 1.6
	floorWords     = 8
	floorKeeps     = 16
)

// Floor is the name of the floor as a signal, by which a service leaves it out.
const Floor = "floor"

// floor sets the scores below the floor to 0. byWords are the scores without similarity, meanings are what similarity
// added to them, before the factors.
func (s *scene) floor(scores, byWords, meanings []float64, explained []ExplainedTurn) {
	if len(scores) <= floorKeeps {
		return
	}
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	most := s.most()
	for _, i := range order[floorKeeps:] {
		share := floorShare
		if s.base[i] <= 0 {
			share = floorShareNear
		}
		if byWords[i] >= share*most || meanings[i] >= s.inUsual(floorMeaning) {
			continue
		}
		if explained != nil && scores[i] != 0 {
			explained[i].addFactor(Floor, 0)
		}
		scores[i] = 0
	}
}

// most is the sum of the weights of the question's own words that any turn has, at most floorWords of them.
func (s *scene) most() (sum float64) {
	var met Words
	for _, held := range s.held {
		met |= held
	}
	weights := make([]float64, 0, s.own)
	for i := range s.own {
		if met.Has(i) {
			weights = append(weights, s.weights[i].text)
		}
	}
	slices.SortFunc(weights, func(a, b float64) int { return cmp.Compare(b, a) })
	for _, w := range weights[:min(len(weights), floorWords)] {
		sum += w
	}
	return sum
}

// onlyHolder is the name of raise as a signal.
const onlyHolder = "only holder"

// raised is what a turn that is raised scores, in scores of the turn above which it goes.
const raised = 1.0001

// raise lets the order obey the question: context and similarity put no turn above the only one that holds what was
// asked for.
//
//   - A turn that alone holds a word of the question goes above each turn that holds some of its words and no other;
//     one that alone holds all words of the question that any turn holds goes above all. A turn that asks a
//     question does not.
//   - A turn that alone holds an id or a number of the question goes above each turn that only similarity puts above
//     it.
func (s *scene) raise(scores, byWords []float64, explained []ExplainedTurn) {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.plain[a], s.plain[b]) })
	once, all := s.heldOnce()
	ids := s.identifiers()
	for _, x := range order {
		held := s.held[x]
		if held == 0 || held&once == 0 && held != all {
			continue
		}
		best := scores[x]
		for y, score := range scores {
			if score <= best || s.held[y].Contains(held) {
				continue
			}
			fewer := (s.held[y] != 0 || held == all) && held.Contains(s.held[y]) && s.plain[x] > s.plain[y] &&
				!s.turns[x].Traits.Has(IsQuestion)
			if fewer || held&once&ids != 0 && byWords[y] <= byWords[x] {
				best = raised * score
			}
		}
		if explained != nil && best > scores[x] && scores[x] > 0 {
			explained[x].addFactor(onlyHolder, best/scores[x])
		}
		scores[x] = best
	}
}

// heldOnce returns the words that one turn alone holds, and the words that any turn holds if one turn alone holds them
// all, else none.
func (s *scene) heldOnce() (once, all Words) {
	var several Words
	for _, held := range s.held {
		several |= all & held
		all |= held
	}
	once = all &^ several
	holders := 0
	for _, held := range s.held {
		if held == all {
			holders++
		}
	}
	if holders != 1 {
		all = 0
	}
	return once, all
}

// identifiers returns the words of the question that are numbers or ids.
func (s *scene) identifiers() (ids Words) {
	for i, t := range s.question.Terms[:s.own] {
		if t.IsIdentifier() {
			ids |= 1 << i
		}
	}
	return ids
}

// Contribution is what one signal adds to the score of a turn: its value, times its weight.
type Contribution struct {
	Signal string  `json:"signal"`
	Value  float64 `json:"value"`
	Weight float64 `json:"weight"`
}

// Factor is what a score is multiplied by.
type Factor struct {
	Name  string  `json:"factor"`
	Value float64 `json:"value"`
}

// ExplainedTurn is what makes the score of a turn: the sum of its contributions, times its factors.
// Contributions of 0 and factors of 1 are left out.
type ExplainedTurn struct {
	Score float64
	// ByWords is the score without similarity.
	ByWords       float64
	Contributions []Contribution
	Factors       []Factor
}

func (e *ExplainedTurn) addSignal(s signal, value float64) {
	if s.weight != 0 && value != 0 {
		e.Contributions = append(e.Contributions, Contribution{s.name, value, s.weight})
	}
}

func (e *ExplainedTurn) addFactor(name string, value float64) {
	if value != 1 {
		e.Factors = append(e.Factors, Factor{name, value})
	}
}

// Explained is a ranking with its reasons.
type Explained struct {
	// Turns are in the order of the ranked ones.
	Turns []ExplainedTurn
	// Named is the author that the question names, or that asks it; "" for none or several. Other is the asker of a
	// question that addresses "you": it asks for texts of others. Usual is the weight of a usual term of the question.
	// Content are the indexes of its own terms that are looked for in texts; the others name an author.
	Named   string
	Other   string
	Usual   float64
	Content []int
}

// RankExplained is Rank with its reasons.
func (a *Analyzer) RankExplained(q Question, weights Weights, turns []Turn, without ...string) Explained {
	s := newScene(a, q, weights, turns)
	e := Explained{
		Turns: make([]ExplainedTurn, len(turns)), Named: s.named, Other: s.other, Usual: s.usual, Content: s.content,
	}
	for i := range turns {
		for _, f := range factors {
			e.Turns[i].addFactor(f.name, f.of(&turns[i]))
		}
	}
	scores, byWords := s.rank(leftOut(without), e.Turns)
	for i := range e.Turns {
		e.Turns[i].Score, e.Turns[i].ByWords = scores[i], byWords[i]
	}
	return e
}
