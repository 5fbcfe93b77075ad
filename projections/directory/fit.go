package directory

import (
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/eventstore"
)

// The limits of a page of several events.
const (
	// maxRows is about how many traits and members the events of a page hold: each becomes rows of
	// tables marks and members.
	maxRows = 250_000
	// rowBytes is the size of a trait or member in a blob: exact for a member, about the least for
	// a trait.
	rowBytes = 16
)

// Fit implements projections.Bounded.
func (*Projector) Fit(events []eventstore.DecodedEvent) int {
	rows, blobs := 0, map[string]bool{}
	for n, decoded := range events {
		for _, ref := range refsOf(decoded.Event) {
			if !blobs[ref.Stream] {
				blobs[ref.Stream] = true
				rows += int(ref.Size / rowBytes)
			}
		}
		rows += inlineRows(decoded)
		if n > 0 && rows > maxRows {
			return n
		}
	}
	return len(events)
}

// inlineRows counts the traits and members in an event itself.
func inlineRows(decoded eventstore.DecodedEvent) int {
	switch e := decoded.Event.(type) {
	case *identity.TraitsReplaced:
		return len(e.Record.Traits.Inline)
	case *identity.TraitsMerged:
		return len(e.Record.Traits.Inline)
	case *identity.BulkRowApplied:
		if e.Record != nil {
			return len(e.Record.Traits.Inline)
		}
	case *identity.BulkAccepted:
		return len(e.Targets)
	case *audience.Put:
		return len(e.Members)
	}
	return 0
}
