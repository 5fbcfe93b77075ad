package score

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

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
