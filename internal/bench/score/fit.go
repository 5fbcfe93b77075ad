package score

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/kljensen/snowball/english"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/recall"
)

// Fit is the outcome of fitting the weights of the ranker's signals to dialogues.
type Fit struct {
	// Weights are fitted on all dialogues, in the order of recall.SignalWeights; that of the words is 1.
	Weights []recall.Weight `json:"weights"`
	// Dialogues have the scores of each, Overall those of all questions.
	Dialogues []FitScores `json:"dialogues"`
	Overall   FitScores   `json:"overall"`
}

// FitScores are the scores of the same questions by three sets of weights: those of the code, those fitted on all
// dialogues, and those fitted on all dialogues but the one that is asked.
type FitScores struct {
	Dialogue string `json:"dialogue,omitempty"`
	Code     Score  `json:"code"`
	InSample Score  `json:"inSample"`
	HeldOut  Score  `json:"heldOut"`
}

// The descent. The step is that of Adam; the penalty is on the squares of weights whose signals have a mean square of
// 1, for each question.
const (
	fitSteps   = 300
	fitRate    = 0.05
	fitPenalty = 0.002
)

// FitWeights fits weights by the likelihood that a turn drawn by its score is evidence (listwise softmax), with a
// penalty on large ones, none below 0. It ranks in this process, as Ablate does. It needs two dialogues, so that each
// can be held out.
func FitWeights(dialogues []Dialogue) (*Fit, error) {
	if len(dialogues) < 2 {
		return nil, errors.New("weights are fitted on two dialogues or more: each is measured with those of the others")
	}
	analyzer := recall.NewAnalyzer()
	var all []*fitQuestion
	of := make([][]*fitQuestion, len(dialogues))
	for i, d := range dialogues {
		s, err := newScene(analyzer, d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.ID, err)
		}
		of[i] = s.fitQuestions()
		all = append(all, of[i]...)
	}
	code := make([]float64, 0, len(recall.SignalWeights()))
	for _, w := range recall.SignalWeights() {
		code = append(code, w.Weight)
	}
	fitted := fitTo(all, code)
	out := &Fit{Weights: recall.SignalWeights()}
	for i := range out.Weights {
		out.Weights[i].Weight = fitted[i]
	}
	var byCode, inSample, heldOut []Answer
	for i, d := range dialogues {
		others := slices.Concat(slices.Concat(of[:i]...), slices.Concat(of[i+1:]...))
		a, b, c := answersBy(of[i], code), answersBy(of[i], fitted), answersBy(of[i], fitTo(others, code))
		out.Dialogues = append(out.Dialogues, FitScores{d.ID, score(a), score(b), score(c)})
		byCode, inSample, heldOut = append(byCode, a...), append(inSample, b...), append(heldOut, c...)
	}
	out.Overall = FitScores{"", score(byCode), score(inSample), score(heldOut)}
	return out, nil
}

// fitQuestion is a question with the features of every turn.
type fitQuestion struct {
	Question
	scene    *scene
	features []recall.Features
	evidence []int
	// usual is the unit of scores, so that questions of many words do not count more.
	usual float64
}

func (s *scene) fitQuestions() (list []*fitQuestion) {
	places := make(map[string]int, len(s.DataPoints))
	for i, p := range s.DataPoints {
		places[p.ID] = i
	}
	for _, q := range s.Questions {
		if q.Excluded {
			continue
		}
		question, weights, turns := s.asked(q.Text)
		f := &fitQuestion{
			Question: q, scene: s, features: s.analyzer.Features(question, weights, turns), usual: weights.Usual(question.Own()),
		}
		for _, id := range q.Evidence {
			if place, ok := places[id]; ok {
				f.evidence = append(f.evidence, place)
			}
		}
		list = append(list, f)
	}
	return list
}

// scores returns those of the turns by weights.
func (f *fitQuestion) scores(weights []float64) []float64 {
	scores := make([]float64, len(f.features))
	for i, turn := range f.features {
		for j, value := range turn.Values {
			scores[i] += weights[j] * value
		}
		scores[i] *= turn.Factor
	}
	return scores
}

func answersBy(questions []*fitQuestion, weights []float64) (answers []Answer) {
	for _, q := range questions {
		answers = append(answers, Answer{Question: q.Question, Results: q.scene.results(q.scores(weights))})
	}
	return answers
}

// fitTo descends from the weights of the code. A signal that no turn has keeps its weight.
func fitTo(questions []*fitQuestion, code []float64) []float64 {
	scale := fitScales(questions, len(code))
	weights := slices.Clone(code)
	first, second := make([]float64, len(code)), make([]float64, len(code))
	const decay, decaySquare, least = 0.9, 0.999, 1e-9
	for step := range fitSteps {
		gradient := make([]float64, len(code))
		for _, q := range questions {
			q.addGradient(weights, gradient)
		}
		for j := range weights {
			if scale[j] == 0 {
				continue
			}
			// The step is taken in the unit in which the signal has a mean square of 1.
			g := gradient[j]/(scale[j]*float64(len(questions))) + fitPenalty*weights[j]*scale[j]
			first[j] = decay*first[j] + (1-decay)*g
			second[j] = decaySquare*second[j] + (1-decaySquare)*g*g
			mean := first[j] / (1 - math.Pow(decay, float64(step+1)))
			square := second[j] / (1 - math.Pow(decaySquare, float64(step+1)))
			weights[j] = max(0, weights[j]-fitRate*mean/(math.Sqrt(square)+least)/scale[j])
		}
	}
	unit := weights[0] // of the words
	if unit <= 0 {
		return code
	}
	for j := range weights {
		if scale[j] != 0 {
			weights[j] = math.Round(100*weights[j]/unit) / 100
		}
	}
	return weights
}

// fitScales returns the root of the mean square of each signal, in units of its question.
func fitScales(questions []*fitQuestion, signals int) []float64 {
	scale, turns := make([]float64, signals), 0
	for _, q := range questions {
		for _, turn := range q.features {
			for j, value := range turn.Values {
				scale[j] += math.Pow(turn.Factor*value/q.usual, 2)
			}
		}
		turns += len(q.features)
	}
	for j := range scale {
		scale[j] = math.Sqrt(scale[j] / float64(max(turns, 1)))
	}
	return scale
}

// addGradient adds the gradient of the loss of one question: the mean over its evidence of the negative logarithm of
// the share that the softmax of the scores gives to it.
func (f *fitQuestion) addGradient(weights, gradient []float64) {
	if len(f.evidence) == 0 {
		return
	}
	scores := f.scores(weights)
	highest := slices.Max(scores)
	sum := 0.0
	for i, s := range scores {
		scores[i] = math.Exp((s - highest) / f.usual)
		sum += scores[i]
	}
	add := func(turn recall.Features, share float64) {
		for j, value := range turn.Values {
			gradient[j] += share * turn.Factor * value / f.usual
		}
	}
	for i, turn := range f.features {
		if share := scores[i] / sum; share > 1e-6 {
			add(turn, share)
		}
	}
	for _, i := range f.evidence {
		add(f.features[i], -1/float64(len(f.evidence)))
	}
}

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

// commonest are Lucene's English stop words.
const commonest = ` a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was will with `

// The constants of BM25 in the baseline.
const (
	k1 = 0.9
	b  = 0.4
)

// plain is a dialogue as plain full-text search sees it: whole turns.
type plain struct {
	dataPoints []client.DataPoint
	counts     []map[string]int
	lengths    []float64
	docs       map[string]int
	mean       float64
}

func newPlain(d Dialogue) *plain {
	p := &plain{dataPoints: d.DataPoints, docs: map[string]int{}}
	for _, point := range d.DataPoints {
		counts := map[string]int{}
		terms := plainTerms(point.Content)
		for _, t := range terms {
			if counts[t]++; counts[t] == 1 {
				p.docs[t]++
			}
		}
		p.counts = append(p.counts, counts)
		p.lengths = append(p.lengths, float64(len(terms)))
		p.mean += float64(len(terms)) / float64(len(d.DataPoints))
	}
	return p
}

// plainTerms returns the stems of a text without the commonest words.
func plainTerms(text string) []string {
	var terms []string
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '\''
	}) {
		w = strings.TrimSuffix(strings.Trim(w, "'"), "'s")
		if w != "" && !strings.Contains(commonest, " "+w+" ") {
			terms = append(terms, english.Stem(w, false))
		}
	}
	return terms
}

// search ranks the turns that contain a word of the question.
func (p *plain) search(question string) []client.RecallResult {
	scores := make([]float64, len(p.dataPoints))
	terms := plainTerms(question)
	slices.Sort(terms)
	for _, t := range slices.Compact(terms) {
		n, df := float64(len(p.dataPoints)), float64(p.docs[t])
		rarity := math.Log1p((n - df + 0.5) / (df + 0.5))
		for i, counts := range p.counts {
			if tf := float64(counts[t]); tf > 0 {
				scores[i] += rarity * tf * (k1 + 1) / (tf + k1*(1-b+b*p.lengths[i]/p.mean))
			}
		}
	}
	order := make([]int, 0, len(scores))
	for i, s := range scores {
		if s > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(scores[j], scores[i]) })
	results := make([]client.RecallResult, len(order))
	for place, i := range order {
		results[place] = client.RecallResult{
			Rank: place + 1, Content: p.dataPoints[i].Content, Sources: []client.RecallSource{{SourceID: p.dataPoints[i].ID}},
		}
	}
	return results
}

// baseline answers the questions of a dialogue by plain full-text search.
func baseline(d Dialogue) []Answer {
	p := newPlain(d)
	answers := make([]Answer, len(d.Questions))
	for i, q := range d.Questions {
		answers[i] = Answer{Question: q, Results: p.search(q.Text)}
	}
	return answers
}

// Bounds are flags: what a report must reach. A bound of 0 is none.
type Bounds struct {
	MinR10        float64       `name:"min-r10" help:"Fail if recall among 10 results, over all, is below this share."`
	MinR20        float64       `name:"min-r20" help:"Fail if recall among 20 results, over all, is below this share."`
	MinR100       float64       `name:"min-r100" help:"Fail if recall among 100 results, over all, is below this share."`
	MinWithin1000 float64       `name:"min-within-1000" help:"Fail if recall within 1,000 tokens, over all, is below this share."`
	MinWithin8000 float64       `name:"min-within-8000" help:"Fail if recall within 8,000 tokens, over all, is below this share."`
	MinGain       float64       `name:"min-gain" help:"Fail if recall within 8,000 tokens is less than this share above BM25's."`
	MaxSources    float64       `name:"max-sources" help:"Fail if a result cites more sources on the average."`
	MaxP50        time.Duration `name:"max-p50" help:"Fail if the median recall takes longer."`
}

// Check returns an error that names each bound that a report misses.
func (b Bounds) Check(r Report) error {
	var errs []error
	least := func(what string, got, want float64) {
		if got < want {
			errs = append(errs, fmt.Errorf("%s is %.3f, below %.3f", what, got, want))
		}
	}
	least("R@10", r.Overall.At[10], b.MinR10)
	least("R@20", r.Overall.At[20], b.MinR20)
	least("R@100", r.Overall.At[100], b.MinR100)
	least("recall within 1,000 tokens", r.Overall.Within[1000], b.MinWithin1000)
	least("recall within 8,000 tokens", r.Overall.Within[8000], b.MinWithin8000)
	if b.MinGain > 0 {
		gain := r.Overall.Within[8000] - r.Baseline.Within[8000]
		least("the gain over BM25 within 8,000 tokens", gain, b.MinGain)
	}
	if b.MaxSources > 0 && r.SourcesPerResult > b.MaxSources {
		errs = append(errs, fmt.Errorf("a result cites %.2f sources, more than %.2f", r.SourcesPerResult, b.MaxSources))
	}
	if got := time.Duration(r.P50 * float64(time.Millisecond)); b.MaxP50 > 0 && got > b.MaxP50 {
		errs = append(errs, fmt.Errorf("the median recall took %v, more than %v", got, b.MaxP50))
	}
	return errors.Join(errs...)
}
