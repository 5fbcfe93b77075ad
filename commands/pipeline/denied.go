package pipeline

import (
	"maps"
	"slices"
	"sync"

	"github.com/annals-project/annals/commands/erasure"
)

// denials holds what the event store denied its user in the last try of each step.
type denials struct {
	mu sync.Mutex
	by map[string]*erasure.DeniedError
}

// note records how a step ended, and returns its error.
func (d *denials) note(step string, err error) error {
	denied := erasure.Denied(err)
	d.mu.Lock()
	defer d.mu.Unlock()
	if denied == nil {
		delete(d.by, step)
		return err
	}
	if d.by == nil {
		d.by = make(map[string]*erasure.DeniedError)
	}
	d.by[step] = denied
	return err
}

// Denied counts the erasures that the event store denied its user in their last try, with the error of one of them. It
// is nil if there are none.
func (f *Finisher) Denied() *erasure.DeniedError {
	f.denied.mu.Lock()
	defer f.denied.mu.Unlock()
	var all *erasure.DeniedError
	for _, step := range slices.Sorted(maps.Keys(f.denied.by)) { // the same one at each call
		d := f.denied.by[step]
		if all == nil {
			all = &erasure.DeniedError{First: d.First}
		}
		all.Count += d.Count
	}
	return all
}
