package needles

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	client "github.com/annals-project/annals/client"
)

// Ranks is the most results of a response that count, and missesOfKind the most misses of a kind that a report lists.
const (
	Ranks        = 10
	missesOfKind = 2
)

// Figures are shares of questions: those whose text is the first result, and those that have it among the first ten.
// Reciprocal is the mean of 1/rank, of 0 beyond the first ten.
type Figures struct {
	Questions  int     `json:"questions"`
	At1        float64 `json:"r1"`
	At10       float64 `json:"r10"`
	Reciprocal float64 `json:"mrr"`
}

// Row holds the figures of one kind.
type Row struct {
	Kind string `json:"kind"`
	Figures
	listed int
}

// Miss is a question whose text was not the first result. Rank is 0 if it was not among the first ten.
type Miss struct {
	Kind     string `json:"kind"`
	Case     string `json:"case"`
	Question string `json:"question"`
	Want     string `json:"want"`
	Got      string `json:"got"`
	Rank     int    `json:"rank"`
}

// Report has the figures of all kinds. Misses are the first of them.
type Report struct {
	Kinds  []Row   `json:"kinds"`
	Total  Figures `json:"total"`
	Misses []Miss  `json:"misses"`
}

// Rank returns the rank of the first result of a source, from 1; 0 if it is not among the first ten. A memory counts
// for its sources.
func Rank(results []client.RecallResult, sourceID string) int {
	for i, r := range results[:min(len(results), Ranks)] {
		if slices.ContainsFunc(r.Sources, func(s client.RecallSource) bool { return s.SourceID == sourceID }) {
			return i + 1
		}
	}
	return 0
}

// Add adds what recall found for the questions of a project, in their order.
func (r *Report) Add(p Project, answers [][]client.RecallResult) {
	at := slices.IndexFunc(r.Kinds, func(row Row) bool { return row.Kind == p.Kind })
	if at < 0 {
		at = len(r.Kinds)
		r.Kinds = append(r.Kinds, Row{Kind: p.Kind})
	}
	contents := make(map[string]string, len(p.Texts))
	for _, t := range p.Texts {
		contents[t.ID] = t.Content
	}
	for i, q := range p.Questions {
		rank := Rank(answers[i], q.Want)
		r.Kinds[at].count(rank)
		r.Total.count(rank)
		if rank == 1 || r.Kinds[at].listed == missesOfKind {
			continue
		}
		r.Kinds[at].listed++
		miss := Miss{
			Kind: p.Kind, Case: fmt.Sprintf("%s, %s", p.Authors, p.Times), Question: q.Text, Want: contents[q.Want], Rank: rank,
		}
		if len(answers[i]) > 0 {
			miss.Got = answers[i][0].Content
		}
		r.Misses = append(r.Misses, miss)
	}
}

// count adds a question to the means.
func (f *Figures) count(rank int) {
	n := float64(f.Questions)
	add := func(mean *float64, value float64) { *mean = (*mean*n + value) / (n + 1) }
	first, found, reciprocal := 0.0, 0.0, 0.0
	if rank > 0 {
		found, reciprocal = 1, 1/float64(rank)
	}
	if rank == 1 {
		first = 1
	}
	add(&f.At1, first)
	add(&f.At10, found)
	add(&f.Reciprocal, reciprocal)
	f.Questions++
}

// Table prints the report.
func (r *Report) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "needle\tquestions\tR@1\tR@10\tMRR")
	for _, row := range append(slices.Clone(r.Kinds), Row{Kind: "total", Figures: r.Total}) {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%.3f\t%.3f\t%.3f\n", row.Kind, row.Questions, row.At1, row.At10, row.Reciprocal)
	}
	for _, m := range r.Misses {
		rank := "not among the first ten"
		if m.Rank > 0 {
			rank = fmt.Sprintf("rank %d", m.Rank)
		}
		_, _ = fmt.Fprintf(t, "%s (%s): %q wants %q, %s, got %q\n", m.Kind, m.Case, m.Question, m.Want, rank, m.Got)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return nil
}

// Check returns an error if less than least of the questions have their text as the first result.
func (r *Report) Check(least float64) error {
	if r.Total.At1 < least {
		return fmt.Errorf("R@1 is %.3f, below %.3f", r.Total.At1, least)
	}
	return nil
}
