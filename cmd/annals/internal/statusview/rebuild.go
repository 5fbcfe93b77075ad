package statusview

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/annals-project/annals/projections/runner"
)

// RebuildView prints the progress of each rebuild, at most twice a second.
type RebuildView struct {
	to   io.Writer
	json bool

	mu   sync.Mutex
	last map[string]time.Time // by projection
	err  error
}

// NewRebuildView makes a view that prints text, or JSON lines.
func NewRebuildView(to io.Writer, asJSON bool) *RebuildView {
	return &RebuildView{to: to, json: asJSON, last: map[string]time.Time{}}
}

// Err returns the first error of printing.
func (v *RebuildView) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// Report prints the progress of a rebuild, unless it did so right before.
func (v *RebuildView) Report(r runner.RebuildProgress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !r.Done && time.Since(v.last[r.Projection]) < 500*time.Millisecond || v.err != nil {
		return
	}
	v.last[r.Projection] = time.Now()
	if v.json {
		v.err = json.NewEncoder(v.to).Encode(r)
	} else {
		v.err = printRebuild(v.to, r)
	}
}

// printRebuild writes the progress as one line.
func printRebuild(out io.Writer, r runner.RebuildProgress) error {
	if r.Done {
		_, err := fmt.Fprintf(
			out, "%s: rebuilt, %d events in %.1f s (%.0f events/s), %s\n",
			r.Projection, r.Events, r.Seconds, r.Rate(), compared(r),
		)
		return err
	}
	_, err := fmt.Fprintf(
		out, "%s: position %d of %d, %.0f events/s%s\n", r.Projection, r.Position, r.Head, r.Rate(), left(r),
	)
	return err
}

// compared describes what a finished rebuild verified.
func compared(r runner.RebuildProgress) string {
	if !r.Compared {
		return "not compared with the rows before"
	}
	return "as many rows as before"
}

// left describes how much is left, and the position at which an interrupted rebuild continued.
func left(r runner.RebuildProgress) (text string) {
	if r.LeftSeconds > 0 {
		text = ", " + time.Duration(r.LeftSeconds*float64(time.Second)).Round(time.Second).String() + " left"
	}
	if r.Resumed > 0 {
		text += fmt.Sprintf(" (continued at %d)", r.Resumed)
	}
	return text
}
