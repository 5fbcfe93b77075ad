package operatorapi

import (
	"encoding/json"
	"io"
	"sync"
	"time"
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
func (v *RebuildView) Report(r RebuildProgress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !r.Done && time.Since(v.last[r.Projection]) < 500*time.Millisecond || v.err != nil {
		return
	}
	v.last[r.Projection] = time.Now()
	if v.json {
		v.err = json.NewEncoder(v.to).Encode(r)
	} else {
		v.err = r.Print(v.to)
	}
}
