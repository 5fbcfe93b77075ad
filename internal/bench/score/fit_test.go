package score

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/recall"
)

// quarrel is a dialogue in which two people use the same words, so that only the author separates their turns.
func quarrel(id string, things ...string) Dialogue {
	d := Dialogue{ID: id, Asker: "Cleo", AskedAt: time.Date(2025, 6, 1, 0, 0, 0, 0, time.UTC)}
	for n, thing := range things {
		for m, name := range []string{"Ana", "Ben"} {
			at := time.Date(2025, 5, 1+n, 9+3*m, 0, 0, 0, time.UTC)
			d.DataPoints = append(d.DataPoints, client.DataPoint{
				ID: thing + name, Content: "The " + thing + " is mine", Identity: name, Timestamp: at.Format(time.RFC3339),
			})
			d.Questions = append(d.Questions, Question{
				Text: "Which " + thing + " does " + name + " mean?", Category: "one", Evidence: []string{thing + name},
			})
		}
	}
	return d
}

func weightOf(t *testing.T, list []recall.Weight, signal string) float64 {
	t.Helper()
	for _, w := range list {
		if w.Signal == signal {
			return w.Weight
		}
	}
	t.Fatalf("no weight of %s", signal)
	return 0
}

func TestFitWeights_FindsTheSignalThatSeparates(t *testing.T) {
	dialogues := []Dialogue{quarrel("a", "boat", "kite", "drum"), quarrel("b", "lamp", "rope", "sled")}
	fit, err := FitWeights(dialogues)
	if err != nil {
		t.Fatal(err)
	}
	date := weightOf(t, fit.Weights, "date")
	of := func(weights []recall.Weight) float64 { // the two signals of what an author writes of themselves
		return weightOf(t, weights, "author") + weightOf(t, weights, "first person")
	}
	if was := of(recall.SignalWeights()); of(fit.Weights) <= was || weightOf(t, fit.Weights, "words") != 1 {
		t.Errorf("weights %v: want more for the author than %v, and 1 for words", fit.Weights, was)
	}
	if was := weightOf(t, recall.SignalWeights(), "date"); date != was {
		t.Errorf("the weight of a signal that no turn has became %v, was %v", date, was)
	}
	for _, w := range fit.Weights {
		if w.Weight < 0 {
			t.Errorf("%s has weight %v", w.Signal, w.Weight)
		}
	}
	if len(fit.Dialogues) != 2 || fit.Dialogues[1].Dialogue != "b" || fit.Overall.HeldOut.Questions != 12 ||
		fit.Overall.HeldOut.At[5] != 1 {
		t.Errorf("scores %+v", fit)
	}
	again, err := FitWeights(dialogues)
	if err != nil || fmt.Sprint(again) != fmt.Sprint(fit) {
		t.Errorf("a second fit differs: %v, %v", again, err)
	}
	var table strings.Builder
	r := Measure(dialogues, nil)
	r.Fit = fit
	if err := r.Table(&table); err != nil || !strings.Contains(table.String(), "\t\"words\": 1,\n") ||
		!strings.Contains(table.String(), "b, held out") {
		t.Errorf("table %s, %v", table.String(), err)
	}
}

func TestFitWeights_NeedsTwoDialogues(t *testing.T) {
	if _, err := FitWeights([]Dialogue{talk()}); err == nil {
		t.Error("one dialogue is taken")
	}
	broken := talk()
	broken.DataPoints[0].Timestamp = "yesterday"
	if _, err := FitWeights([]Dialogue{talk(), broken}); err == nil {
		t.Error("a time that is none is taken")
	}
}

// The gradient is that of the loss, by differences.
func TestFitQuestion_Gradient(t *testing.T) {
	s, err := newScene(recall.NewAnalyzer(), quarrel("a", "boat", "kite"))
	if err != nil {
		t.Fatal(err)
	}
	q := s.fitQuestions()[1]
	q.evidence = append(q.evidence, 0)
	loss := func(weights []float64) float64 {
		scores, sum, of := q.scores(weights), 0.0, 0.0
		for _, score := range scores {
			sum += math.Exp(score / q.usual)
		}
		for _, i := range q.evidence {
			of -= (scores[i]/q.usual - math.Log(sum)) / float64(len(q.evidence))
		}
		return of
	}
	weights := make([]float64, len(recall.SignalWeights()))
	for j := range weights {
		weights[j] = 0.3 + 0.01*float64(j)
	}
	gradient := make([]float64, len(weights))
	q.addGradient(weights, gradient)
	for j := range weights {
		const step = 1e-5
		before := weights[j]
		weights[j] = before + step
		high := loss(weights)
		weights[j] = before - step
		low := loss(weights)
		weights[j] = before
		if want := (high - low) / (2 * step); math.Abs(want-gradient[j]) > 1e-4 {
			t.Errorf("signal %d: gradient %v, by differences %v", j, gradient[j], want)
		}
	}
}
