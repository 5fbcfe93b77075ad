package identity

import (
	"maps"

	"github.com/annals-project/annals/domain/event"
)

// Evolve is the record as it stands behind the next event of its stream: nil where there is none, or none any more. A record that
// was handed out is never changed.
func Evolve(standing *Record, e event.Event) *Record {
	switch e := e.(type) {
	case *Appeared:
		if standing == nil {
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
	return standing
}

// Settles reports whether an event alone says what stands behind it, whatever was before.
func Settles(e event.Event) bool {
	switch e.(type) {
	case *Appeared, *Cleared:
		return false
	default:
		return true
	}
}

// Apply is traits with a patch over them. A patch that lies in a blob is read before.
func (p Patch) Apply(traits map[string]string) map[string]string {
	patched := make(map[string]string, len(traits)+len(p.Set))
	maps.Copy(patched, traits)
	maps.Copy(patched, p.Set)
	for _, key := range p.Removed {
		delete(patched, key)
	}
	return patched
}
