package hostile

import (
	"fmt"
	"io"
	"strings"

	"github.com/annals-project/annals/internal/bench/load"
)

// The bounds of an attack: its effect on a neighbour in milliseconds, and the memory of the
// service.
const (
	maxSearchable = 2000
	maxRecall     = 300
	MaxResident   = 1 << 30
)

// Result is the outcome of an attack.
type Result struct {
	Attack  Attack
	Noticed Noticed
	// Seconds is how long the attack took.
	Seconds float64
	// Resident is the largest memory of the process during the attack, without Postgres, and Idle that before it.
	Resident, Idle int64
	// Plain is the effect of what the attack is compared with, and PlainResident the largest memory during it.
	Plain         Noticed
	PlainResident int64
	// Before and After are the goroutines of the service.
	Before, After float64
	// Attacker and Neighbour count the responses to each.
	Attacker, Neighbour *Answers
	// Restarts counts how often the process ended by itself or was killed for its memory.
	Restarts int
	// Restart is how long the start after the attack took, in seconds.
	Restart float64
	// Err is the reason why the attack ended early.
	Err error
}

// Missed lists the bounds that were exceeded.
func (r Result) Missed() (missed []string) {
	add := func(is bool, format string, args ...any) {
		if is {
			missed = append(missed, fmt.Sprintf(format, args...))
		}
	}
	add(r.Err != nil, "%v", r.Err)
	add(len(r.Noticed.Searchable) == 0 || len(r.Noticed.Recall) == 0, "the neighbour was not answered")
	add(len(r.Noticed.Searchable) > 0 && r.Noticed.Searchable.Percentile(0.99) > maxSearchable,
		"searchable after more than %d ms", maxSearchable)
	add(len(r.Noticed.Recall) > 0 && r.Noticed.Recall.Percentile(0.99) > maxRecall, "recall takes more than %d ms",
		maxRecall)
	add(r.Resident > MaxResident, "memory over %d MiB", MaxResident>>20)
	add(r.Attack.Adds > 0 && r.Resident-r.Idle > r.Attack.Adds, "memory grows by more than %d MiB", r.Attack.Adds>>20)
	add(r.Attack.Times > 0 && len(r.Noticed.Recall) > 0 &&
		r.Noticed.Recall.Percentile(0.99) > r.Attack.Times*r.Plain.Recall.Percentile(0.99),
		"recall takes more than %g times as long as during plain calls", r.Attack.Times)
	add(r.Restarts > 0, "%d restarts", r.Restarts)
	add(r.Attacker.Wrong() > 0, "the attacker got %s", r.Attacker.Select("5"))
	add(r.Neighbour.Wrong() > 0, "the neighbour got %s", r.Neighbour.Select("5"))
	return missed
}

// Write writes the result for people.
func (r Result) Write(w io.Writer) error {
	times := func(name string, t load.Times) string {
		if len(t) == 0 {
			return name + " never"
		}
		return fmt.Sprintf("%s p50 %.0f, p99 %.0f, max %.0f ms (%d)", name, t.Percentile(0.50), t.Percentile(0.99),
			t.Percentile(1), len(t))
	}
	verdict := "kept"
	if missed := r.Missed(); len(missed) > 0 {
		verdict = "MISSED: " + strings.Join(missed, "; ")
	}
	plain := ""
	if r.Attack.Plain != nil {
		plain = fmt.Sprintf("  during plain calls: %s; %s; memory at most %d MiB\n",
			times("searchable", r.Plain.Searchable), times("recall", r.Plain.Recall), r.PlainResident>>20)
	}
	_, err := fmt.Fprintf(w, "%s: %s\n%s  %s; %s\n"+
		"  memory at most %d MiB, before %d MiB; goroutines %.0f, then %.0f; %.1f s; next start %.1f s\n"+
		"  attacker: %s\n  neighbour: %s\n  %s\n",
		r.Attack.Name, r.Attack.What, plain, times("searchable", r.Noticed.Searchable), times("recall", r.Noticed.Recall),
		r.Resident>>20, r.Idle>>20, r.Before, r.After, r.Seconds, r.Restart, r.Attacker.Select(""), r.Neighbour.Select(""),
		verdict)
	return err
}
