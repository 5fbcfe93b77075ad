package recall_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/recall"
)

// termOfScore is a term of a score that the page shows: a signal, its value, and its weight.
var termOfScore = regexp.MustCompile(`([a-z][a-z ]*) [0-9.]+×([0-9.]+)`)

// The table of signals in docs/how-recall-ranks.md has each signal with the weight of the code, and no other. A
// row may hold several: "before, after" and "0.3, 0.25". The scores that the page shows have these weights.
func TestSignalWeights_OfPage(t *testing.T) {
	const heading = "\n## The signals\n"
	page, err := os.ReadFile("../../docs/how-recall-ranks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), heading)
	if !found {
		t.Fatalf("the page has no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	shown := map[string]float64{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 {
			continue
		}
		names, values := strings.Split(cells[0], ","), strings.Split(cells[1], ",")
		for i, value := range values {
			weight, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				break // the heading, or a factor
			}
			if len(names) != len(values) {
				t.Fatalf("%d weights for %d signals: %s", len(values), len(names), line)
			}
			shown[strings.TrimSpace(names[i])] = weight
		}
	}
	weights := map[string]float64{}
	for _, of := range recall.SignalWeights() {
		weights[of.Signal] = of.Weight
		weight, is := shown[of.Signal]
		if !is {
			t.Errorf("the page has no signal %q", of.Signal)
		} else if weight != of.Weight {
			t.Errorf("%s weighs %v in the page, %v in the code", of.Signal, weight, of.Weight)
		}
		delete(shown, of.Signal)
	}
	for name := range shown {
		t.Errorf("the code has no signal %q", name)
	}
	terms := termOfScore.FindAllStringSubmatch(string(page), -1)
	if len(terms) == 0 {
		t.Error("the page shows no score")
	}
	for _, term := range terms {
		if weight, err := strconv.ParseFloat(term[2], 64); err != nil || weight != weights[strings.TrimSpace(term[1])] {
			t.Errorf("a score of the page has %q, the code %v", term[0], weights[strings.TrimSpace(term[1])])
		}
	}
}
