package score

import (
	"errors"
	"fmt"
	"math"
	"slices"

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
