package score

import (
	"cmp"
	"maps"
	"slices"
	"time"

	client "github.com/annals-project/annals/client"
)

// ranks are the numbers of results that recall is reported at.
func ranks() []int { return []int{1, 5, 10, 20, 50, 100} }

// budgets are the numbers of tokens that recall is reported within.
func budgets() []int { return []int{1000, 2000, 4000, 8000} }

// Answer is one question with its results.
type Answer struct {
	Question
	Results []client.RecallResult
	Took    time.Duration
}

// Score is the mean over the questions of one category, or of several.
type Score struct {
	Questions int `json:"questions"`
	// At is recall among the first k results, Within among the results that fit n tokens.
	At     map[int]float64 `json:"recallAt"`
	Within map[int]float64 `json:"recallWithinTokens"`
}

// Report is the result of a measurement.
type Report struct {
	Dialogues  int              `json:"dialogues"`
	Turns      int              `json:"turns"`
	Skipped    int              `json:"questionsWithoutEvidence"`
	Categories map[string]Score `json:"categories"`
	// Overall covers the categories that are not excluded; Excluded names those that are.
	Overall  Score    `json:"overall"`
	Excluded []string `json:"aside"`
	// Baseline is Overall of BM25 on the same turns: it ranks whole turns by stems without the
	// commonest words.
	Baseline Score `json:"baseline"`
	// SourcesPerResult is the mean number of distinct sources of a result.
	SourcesPerResult float64 `json:"sourcesPerResult"`
	// P50 and P99 are latencies of a recall over HTTP, in milliseconds.
	P50 float64 `json:"p50Ms"`
	P99 float64 `json:"p99Ms"`
	// Ablation holds the scores without one signal each, if requested.
	Ablation []Ablated `json:"ablation,omitempty"`
	// Fit holds fitted weights, nil if none were requested.
	Fit *Fit `json:"fit,omitempty"`
	// Misses are the evidence that recall lost, nil if they were not requested.
	Misses []Miss `json:"misses,omitzero"`
}

// Measure scores the answers to the questions of dialogues.
func Measure(dialogues []Dialogue, answers []Answer) Report {
	r := Report{Dialogues: len(dialogues), Categories: map[string]Score{}, Excluded: []string{}}
	byCategory := map[string][]Answer{}
	var took []time.Duration
	var results, sources int
	for _, a := range answers {
		byCategory[a.Category] = append(byCategory[a.Category], a)
		if a.Excluded && !slices.Contains(r.Excluded, a.Category) {
			r.Excluded = append(r.Excluded, a.Category)
		}
		took = append(took, a.Took)
		results += len(a.Results)
		for _, r := range a.Results {
			sources += len(sourceIDs(r))
		}
	}
	for category, of := range byCategory {
		r.Categories[category] = score(of)
	}
	slices.Sort(r.Excluded)
	r.Overall = score(counted(answers))
	var plain []Answer
	for _, d := range dialogues {
		r.Turns += len(d.DataPoints)
		r.Skipped += d.Skipped
		plain = append(plain, baseline(d)...)
	}
	r.Baseline = score(counted(plain))
	if results > 0 {
		r.SourcesPerResult = float64(sources) / float64(results)
	}
	slices.Sort(took)
	r.P50, r.P99 = ms(Percentile(took, 0.50)), ms(Percentile(took, 0.99))
	return r
}

// counted returns the answers that count for the overall figures.
func counted(answers []Answer) []Answer {
	return slices.DeleteFunc(slices.Clone(answers), func(a Answer) bool { return a.Excluded })
}

func score(answers []Answer) Score {
	s := Score{Questions: len(answers), At: map[int]float64{}, Within: map[int]float64{}}
	for _, k := range ranks() {
		s.At[k] = mean(answers, func(a Answer) []client.RecallResult { return a.Results[:min(k, len(a.Results))] })
	}
	for _, budget := range budgets() {
		s.Within[budget] = mean(answers, func(a Answer) []client.RecallResult { return within(a.Results, budget) })
	}
	return s
}

// mean is the mean share of the evidence that is among the results that take picks.
func mean(answers []Answer, take func(Answer) []client.RecallResult) float64 {
	if len(answers) == 0 {
		return 0
	}
	var sum float64
	for _, a := range answers {
		found := map[string]bool{}
		for _, r := range take(a) {
			maps.Copy(found, sourceIDs(r))
		}
		var n int
		for _, e := range a.Evidence {
			if found[e] {
				n++
			}
		}
		sum += float64(n) / float64(len(a.Evidence))
	}
	return sum / float64(len(answers))
}

// within takes whole results in order as the service does under a budget: one that does not fit is
// left out.
func within(results []client.RecallResult, budget int) []client.RecallResult {
	var taken []client.RecallResult
	for _, r := range results {
		if n := r.Tokens(); n <= budget {
			taken, budget = append(taken, r), budget-n
		}
	}
	return taken
}

func sourceIDs(r client.RecallResult) map[string]bool {
	ids := map[string]bool{}
	for _, s := range r.Sources {
		ids[s.SourceID] = true
	}
	return ids
}

// Percentile returns the smallest of the sorted values that at least the share p of them does not
// exceed; zero if there are none.
func Percentile[T cmp.Ordered](sorted []T, p float64) T {
	var zero T
	if len(sorted) == 0 {
		return zero
	}
	i := int(p*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
