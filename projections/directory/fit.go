package directory

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

var _ projections.Bounded = (*Projector)(nil)

// The bounds of a page of several events.
const (
	// maxRows is about how many traits and members the events bring: each becomes rows of tables marks and members.
	maxRows = 250_000
	// rowBytes is what one of them takes in a blob: a member exactly, a trait at least about so much.
	rowBytes = 16
	// maxRecounted is how many projects have audiences to count anew: each is a pass over the identities of the project.
	maxRecounted = 16
)

// Fit implements projections.Bounded.
func (*Projector) Fit(facts []eventstore.Fact) int {
	rows, blobs, recounted := 0, map[string]bool{}, ids{}
	for n, f := range facts {
		for _, ref := range refsOf(f.Event) {
			if !blobs[ref.Stream] {
				blobs[ref.Stream] = true
				rows += int(ref.Size / rowBytes)
			}
		}
		rows += inlineRows(f)
		if project := recountedBy(f); project != uuid.Nil {
			recounted.add(project)
		}
		if n > 0 && (rows > maxRows || len(recounted) > maxRecounted) {
			return n
		}
	}
	return len(facts)
}

// inlineRows is how many traits and members are in an event itself.
func inlineRows(f eventstore.Fact) int {
	switch e := f.Event.(type) {
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

// recountedBy is the project of an event that has an audience counted anew.
func recountedBy(f eventstore.Fact) uuid.UUID {
	switch e := f.Event.(type) {
	case *audience.Put:
		if e.Kind == audience.KindRule {
			return e.ProjectID
		}
	case *audience.Recomputed:
		return e.ProjectID
	}
	return uuid.Nil
}
