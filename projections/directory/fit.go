package directory

import (
	"github.com/google/uuid"

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
	// maxRecounted is the most projects with audiences to recount: each costs a pass over its
	// identities.
	maxRecounted = 16
)

// Fit implements projections.Bounded.
func (*Projector) Fit(events []eventstore.DecodedEvent) int {
	rows, blobs, recounted := 0, map[string]bool{}, ids{}
	for n, decoded := range events {
		for _, ref := range refsOf(decoded.Event) {
			if !blobs[ref.Stream] {
				blobs[ref.Stream] = true
				rows += int(ref.Size / rowBytes)
			}
		}
		rows += inlineRows(decoded)
		if project := recountedBy(decoded); project != uuid.Nil {
			recounted.add(project)
		}
		if n > 0 && (rows > maxRows || len(recounted) > maxRecounted) {
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

// recountedBy returns the project of an event that makes an audience need a recount, else uuid.Nil.
func recountedBy(decoded eventstore.DecodedEvent) uuid.UUID {
	switch e := decoded.Event.(type) {
	case *audience.Put:
		if e.Kind == audience.KindRule {
			return e.ProjectID
		}
	case *audience.Recomputed:
		return e.ProjectID
	}
	return uuid.Nil
}
