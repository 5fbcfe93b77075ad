// Package score measures recall on dialogues with questions whose evidence is known.
package score

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
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

// Dialogue is a conversation with questions about it.
type Dialogue struct {
	ID string
	// DataPoints are the turns, oldest first.
	DataPoints []client.DataPoint
	Questions  []Question
	// Asker is the identity that asks, at AskedAt.
	Asker   string
	AskedAt time.Time
	// Skipped counts the questions without evidence, which cannot be measured.
	Skipped int
}

// Question is answered by one or more turns.
type Question struct {
	Text     string
	Category string
	// Excluded reports that its category is reported, but not part of the overall figures.
	Excluded bool
	// Evidence are the source ids of the turns, at least one, each once.
	Evidence []string
}

// Table writes a report for people.
func (r Report) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "category\tn\t"
	for _, k := range ranks() {
		head += fmt.Sprintf("R@%d\t", k)
	}
	for _, b := range budgets() {
		head += fmt.Sprintf("%d tok\t", b)
	}
	lines := []string{head}
	for _, category := range slices.Sorted(maps.Keys(r.Categories)) {
		if !slices.Contains(r.Excluded, category) {
			lines = append(lines, line(category, r.Categories[category]))
		}
	}
	lines = append(lines, line("all of these", r.Overall), line("BM25 on these", r.Baseline))
	for _, category := range r.Excluded {
		lines = append(lines, line(category, r.Categories[category]))
	}
	for _, a := range r.Ablation {
		lines = append(lines, line(a.name(), a.Score))
	}
	if r.Fit != nil {
		for _, d := range append(r.Fit.Dialogues, r.Fit.Overall) {
			of := cmp.Or(d.Dialogue, "all of these")
			lines = append(lines, line(of+", weights of the code", d.Code), line(of+", fitted on all", d.InSample),
				line(of+", held out", d.HeldOut))
		}
	}
	for _, l := range lines {
		if _, err := fmt.Fprintln(t, l); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	_, err := fmt.Fprintf(w, "%d dialogues, %d turns; %d questions without evidence left out; "+
		"%.2f sources a result; recall p50 %.1f ms, p99 %.1f ms\n",
		r.Dialogues, r.Turns, r.Skipped, r.SourcesPerResult, r.P50, r.P99)
	if err == nil && r.Fit != nil {
		for _, f := range r.Fit.Weights {
			if _, err = fmt.Fprintf(w, "\t%q: %v,\n", f.Signal, f.Weight); err != nil {
				break
			}
		}
	}
	if err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func line(name string, s Score) string {
	text := fmt.Sprintf("%s\t%d\t", name, s.Questions)
	for _, k := range ranks() {
		text += fmt.Sprintf("%.1f\t", 100*s.At[k])
	}
	for _, b := range budgets() {
		text += fmt.Sprintf("%.1f\t", 100*s.Within[b])
	}
	return text
}

// MissLimit and MissTokens are the response in which evidence is missed.
const (
	MissLimit  = 100
	MissTokens = 8000
)

// Miss is a turn with the answer to a question that a response lacks.
type Miss struct {
	Dialogue string `json:"dialogue"`
	Category string `json:"category"`
	Question string `json:"question"`
	SourceID string `json:"sourceId"`
	// Cause is where recall lost it, Why the reason in words.
	Cause string `json:"cause"`
	Why   string `json:"why,omitempty"`
	// Rank is its place among the ranked candidates, 0 if it was not ranked.
	Rank int `json:"rank,omitempty"`
}

// Missing returns the evidence that is not among the first MissLimit results, or not within MissTokens.
func (a Answer) Missing() []string {
	found := map[string]bool{}
	for _, r := range within(a.Results[:min(MissLimit, len(a.Results))], MissTokens) {
		for id := range sourceIDs(r) {
			found[id] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(a.Evidence), func(id string) bool { return found[id] })
}

// PrintMisses writes how many turns of each category were missed for each cause. causes are in the order
// of the rows; those without a miss are left out.
func PrintMisses(w io.Writer, misses []Miss, causes []string) error {
	var categories []string
	counts := map[[2]string]int{}
	for _, m := range misses {
		if !slices.Contains(categories, m.Category) {
			categories = append(categories, m.Category)
		}
		counts[[2]string{m.Cause, m.Category}]++
		counts[[2]string{m.Cause, ""}]++
	}
	slices.Sort(categories)
	_, err := fmt.Fprintf(w, "\nmisses among %d results and %d tokens: %d\n", MissLimit, MissTokens, len(misses))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if len(misses) > 0 {
		_, _ = fmt.Fprint(t, "cause\t")
		for _, c := range categories {
			_, _ = fmt.Fprintf(t, "%s\t", c)
		}
		_, _ = fmt.Fprintln(t, "all\t")
	}
	for _, cause := range causes {
		if counts[[2]string{cause, ""}] == 0 {
			continue
		}
		_, _ = fmt.Fprintf(t, "%s\t", cause)
		for _, c := range append(slices.Clone(categories), "") {
			_, _ = fmt.Fprintf(t, "%d\t", counts[[2]string{cause, c}])
		}
		_, _ = fmt.Fprintln(t)
	}
	if flushed := t.Flush(); err == nil {
		err = flushed
	}
	if err != nil {
		return fmt.Errorf("write misses: %w", err)
	}
	return nil
}
