package identity

import (
	"maps"

	"github.com/annals-project/annals/domain/event"
)

// Evolve returns the record after the next event of its stream, nil if there is none. It does not
// change the given record.
func Evolve(current *Record, e event.Event) *Record {
	switch e := e.(type) {
	case *Appeared:
		if current == nil {
			return &Record{Identity: e.Identity, Origin: e.Origin, CreatedAt: e.AppearedAt, UpdatedAt: e.AppearedAt}
		}
	case *TraitsReplaced:
		return &e.Record
	case *TraitsMerged:
		return &e.Record
	case *BulkRowApplied:
		return e.Record
	case *Removed:
		return nil
	}
	return current
}

// IsSelfContained reports whether an event alone determines the record after it.
func IsSelfContained(e event.Event) bool {
	switch e.(type) {
	case *Appeared, *Cleared:
		return false
	default:
		return true
	}
}

// Apply returns traits with the patch applied. A patch in a blob must be read first.
func (p Patch) Apply(traits map[string]string) map[string]string {
	patched := make(map[string]string, len(traits)+len(p.Set))
	maps.Copy(patched, traits)
	maps.Copy(patched, p.Set)
	for _, key := range p.Removed {
		delete(patched, key)
	}
	return patched
}
