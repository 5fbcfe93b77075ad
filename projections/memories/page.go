package memories

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

type revisionKey struct {
	dataPoint uuid.UUID
	revision  int
}

// derivation is the memories of one revision that the page writes, in place of those that stand.
type derivation struct {
	event    *memory.Derived
	memories []memory.Memory
	position eventstore.Position
}

// capturedRow is a row of table captured.
type capturedRow struct {
	project  uuid.UUID
	revision int
	position eventstore.Position
	dirty    bool
}

// goneRow is a row of table gone.
type goneRow struct {
	project  uuid.UUID
	deletion uuid.UUID
	dirty    bool
}

// page is the rows that a page of events touches.
type page struct {
	derived  map[revisionKey]*derivation
	replaced map[revisionKey]struct{} // revisions that may have memories already
	captured map[uuid.UUID]*capturedRow
	gone     map[uuid.UUID]*goneRow
	cleaned  map[uuid.UUID]struct{} // deletions whose data points nobody can write any more
}

// apply folds one event.
func (p *page) apply(f eventstore.Fact) error {
	owner := stream.Owner(f.Stream)
	switch e := f.Event.(type) {
	case *memory.Derived:
		p.capture(f.Position, owner, e)
	case *datapoint.Deleted:
		p.forget(owner, e.ProjectID, e.DeletionID)
	case *deletion.FactsKept:
		p.forget(e.DataPoint, e.ProjectID, owner)
	case *deletion.Cleaned:
		p.cleaned[owner] = struct{}{}
	case *memory.DerivationStarted, *memory.Failed, *memory.Embedded, *datapoint.RevisionAccepted, *datapoint.Moved, *datapoint.Resent,
		*deletion.Accepted, *deletion.FannedOut:
	default:
		return fmt.Errorf("no rule for %s", f.Type)
	}
	return nil
}

// capture takes the memories of a revision. Only revisions that are no history are derived, and those are newer the higher
// their number is.
func (p *page) capture(at eventstore.Position, dataPoint uuid.UUID, e *memory.Derived) {
	if p.gone[dataPoint] != nil {
		return
	}
	key := revisionKey{dataPoint: dataPoint, revision: e.Revision}
	row := p.captured[dataPoint]
	if row == nil {
		row = &capturedRow{project: e.ProjectID}
		p.captured[dataPoint] = row
	}
	if row.revision >= e.Revision {
		p.replaced[key] = struct{}{}
	} else {
		row.revision, row.position, row.dirty = e.Revision, at, true
	}
	p.derived[key] = &derivation{event: e, position: at}
}

// forget drops everything that was derived from a data point, and what may still be derived of it.
func (p *page) forget(dataPoint, project, deletion uuid.UUID) {
	if p.gone[dataPoint] == nil {
		p.gone[dataPoint] = &goneRow{project: project, deletion: deletion, dirty: true}
	}
	delete(p.captured, dataPoint)
	for key := range p.derived {
		if key.dataPoint == dataPoint {
			delete(p.derived, key)
			delete(p.replaced, key)
		}
	}
}
