package bench

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
)

// PairReport is the result of Pair.
type PairReport struct {
	Programs []PairProgram `json:"programs"`
	Sizes    PairSizes     `json:"sizes"`
	// LoadSeconds is how long each load lasted.
	LoadSeconds float64 `json:"loadSeconds"`
	// Processors is how many processors the machine has, which the services and the load share.
	Processors int           `json:"processors"`
	Rows       []*PairRow    `json:"rows"`
	LeftOut    []PairLeftOut `json:"leftOut,omitempty"`
}

// PairProgram is one of the services that were measured.
type PairProgram struct {
	Name   string `json:"name"`
	Commit string `json:"commit"`
	// Changed reports that the tree differs from the commit.
	Changed bool `json:"changed,omitempty"`
}

// PairRow is one measured value of all services.
type PairRow struct {
	What string `json:"what"`
	Unit string `json:"unit"`
	// More reports that more is better.
	More bool `json:"moreIsBetter,omitempty"`
	// Below reports that the row belongs to the one before: the processor time of what that measures.
	Below bool `json:"below,omitempty"`
	// Values has a value for each round, by service. Median is that of these.
	Values map[string][]float64 `json:"values"`
	Median map[string]float64   `json:"median"`
	// Gain compares this tree with each base.
	Gain map[string]PairGain `json:"gain,omitempty"`
}

// PairGain is how many times as good this tree is as a base: above 1 is better.
type PairGain struct {
	// Ratio is that of the medians, Least and Most are those of single rounds.
	Ratio float64 `json:"ratio"`
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
}

// PairLeftOut is a part that was not measured of a service, which lacks what it takes.
type PairLeftOut struct {
	Program string `json:"program"`
	Part    string `json:"part"`
	Why     string `json:"why"`
}

// add adds the value of one round.
func (r *PairReport) add(program string, row PairRow, value float64) {
	i := slices.IndexFunc(r.Rows, func(known *PairRow) bool { return known.What == row.What })
	if i < 0 {
		i = len(r.Rows)
		row.Values = map[string][]float64{}
		r.Rows = append(r.Rows, &row)
	}
	r.Rows[i].Values[program] = append(r.Rows[i].Values[program], value)
}

// leaveOut records once why a part of a service is left out.
func (r *PairReport) leaveOut(program, part, why string) {
	if !r.leavesOut(program, part) {
		r.LeftOut = append(r.LeftOut, PairLeftOut{program, part, why})
	}
}

func (r *PairReport) leavesOut(program, part string) bool {
	return slices.ContainsFunc(r.LeftOut, func(l PairLeftOut) bool { return l.Program == program && l.Part == part })
}

// compare computes the medians, and the gains over all programs but the last, which is this tree.
func (r *PairReport) compare() {
	last := len(r.Programs) - 1
	for _, row := range r.Rows {
		row.Median, row.Gain = map[string]float64{}, map[string]PairGain{}
		for name, values := range row.Values {
			row.Median[name] = median(values)
		}
		this := row.Values[r.Programs[last].Name]
		for _, base := range r.Programs[:last] {
			if gain, ok := gainOf(row.Values[base.Name], this, row.More); ok {
				row.Gain[base.Name] = gain
			}
		}
	}
}

// gainOf compares the values of the same rounds. It reports false if there are none, or a value is 0.
func gainOf(base, this []float64, more bool) (g PairGain, ok bool) {
	rounds := min(len(base), len(this))
	if rounds == 0 || slices.Contains(base, 0) || slices.Contains(this, 0) {
		return g, false
	}
	ratio := func(base, this float64) float64 {
		if more {
			return this / base
		}
		return base / this
	}
	g = PairGain{Ratio: ratio(median(base), median(this)), Least: math.Inf(1)}
	for i := range rounds {
		of := ratio(base[i], this[i])
		g.Least, g.Most = min(g.Least, of), max(g.Most, of)
	}
	return g, true
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[half-1] + sorted[half]) / 2
	}
	return sorted[half]
}

// Table writes the report for people.
func (r *PairReport) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	this := r.Programs[len(r.Programs)-1]
	head := []string{"MEDIAN OF " + strconv.Itoa(r.Sizes.Rounds) + " ROUNDS", ""}
	for _, p := range r.Programs {
		head = append(head, p.Name)
	}
	for _, p := range r.Programs[:len(r.Programs)-1] {
		head = append(head, "TIMES AS GOOD AS "+p.Name)
	}
	_, _ = fmt.Fprintln(t, strings.Join(head, "\t")) // Flush returns the error
	for _, row := range r.Rows {
		cells := []string{row.What, row.Unit}
		if row.Below {
			_, whose, _ := strings.Cut(row.What, ": ")
			cells[0] = "  " + whose
		}
		for _, p := range r.Programs {
			cells = append(cells, figure(row.Values[p.Name], row.Median[p.Name]))
		}
		for _, p := range r.Programs[:len(r.Programs)-1] {
			cell := "-"
			if g, ok := row.Gain[p.Name]; ok {
				cell = fmt.Sprintf("%.2f (%.2f to %.2f)", g.Ratio, g.Least, g.Most)
			}
			cells = append(cells, cell)
		}
		_, _ = fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	lines := make([]string, 0, len(r.LeftOut)+len(r.Programs))
	for _, l := range r.LeftOut {
		lines = append(lines, fmt.Sprintf("Left out of %s: %s, since %s.", l.Program, l.Part, l.Why))
	}
	for _, p := range r.Programs {
		changed := ""
		if p.Changed {
			changed = " with changes"
		}
		lines = append(lines, fmt.Sprintf("%s is %.12s%s.", p.Name, p.Commit, changed))
	}
	lines = append(lines, fmt.Sprintf("%s passages, loads of %v, %d processors; %s has the benchmarks.",
		humanize.Comma(int64(r.Sizes.Passages)), r.Sizes.For, r.Processors, this.Name))
	if _, err := fmt.Fprintln(w, strings.Join(lines, "\n")); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// figure is a median for people, with three digits; "-" without values.
func figure(values []float64, median float64) string {
	if len(values) == 0 {
		return "-"
	}
	digits := 2 - int(math.Floor(math.Log10(cmp.Or(math.Abs(median), 1))))
	digits = min(max(digits, 0), 2)
	unit := math.Pow10(digits)
	return humanize.Commaf(math.Round(median*unit) / unit)
}
