package operatorapi

import (
	"fmt"
	"io"
	"time"
)

// RebuildProgress is the progress of a rebuild.
type RebuildProgress struct {
	Projection string `json:"projection"`
	Position   uint64 `json:"position"`
	// Head is the newest position of the log.
	Head uint64 `json:"head"`
	// Resumed is the position at which an interrupted rebuild continued.
	Resumed uint64 `json:"resumed,omitempty"`
	// Events is how many events were applied in Seconds. LeftSeconds is an estimate, 0 if it is unknown.
	Events      int64   `json:"events"`
	Seconds     float64 `json:"seconds"`
	LeftSeconds float64 `json:"leftSeconds,omitempty"`
	// Compared is true once the rebuilt rows are as many as the live ones were.
	Compared bool `json:"compared,omitempty"`
	Done     bool `json:"done"`
}

// Rate returns events a second.
func (r RebuildProgress) Rate() float64 { return float64(r.Events) / max(r.Seconds, 0.001) }

// Print writes the progress as one line.
func (r RebuildProgress) Print(out io.Writer) error {
	if r.Done {
		_, err := fmt.Fprintf(
			out, "%s: rebuilt, %d events in %.1f s (%.0f events/s), %s\n",
			r.Projection, r.Events, r.Seconds, r.Rate(), r.compared(),
		)
		return err
	}
	_, err := fmt.Fprintf(
		out, "%s: position %d of %d, %.0f events/s%s\n", r.Projection, r.Position, r.Head, r.Rate(), r.left(),
	)
	return err
}

// compared describes what a finished rebuild verified.
func (r RebuildProgress) compared() string {
	if !r.Compared {
		return "not compared with the rows before"
	}
	return "as many rows as before"
}

// left describes how much is left, and the position at which an interrupted rebuild continued.
func (r RebuildProgress) left() (text string) {
	if r.LeftSeconds > 0 {
		text = ", " + time.Duration(r.LeftSeconds*float64(time.Second)).Round(time.Second).String() + " left"
	}
	if r.Resumed > 0 {
		text += fmt.Sprintf(" (continued at %d)", r.Resumed)
	}
	return text
}
