package score

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

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
