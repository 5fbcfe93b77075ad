package memories

import (
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

// derivation is the memories of one revision that the page writes. They replace earlier ones.
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

// tombstoneRow is a row of table gone: a deleted data point whose streams may still be written.
type tombstoneRow struct {
	project  uuid.UUID
	deletion uuid.UUID
	dirty    bool
}

// fold holds the rows that a page of events touches: first as loaded, then as changed by the
// events.
type fold struct {
	derived    map[revisionKey]*derivation
	replaced   map[revisionKey]struct{} // revisions that may already have memories
	captured   map[uuid.UUID]*capturedRow
	tombstones map[uuid.UUID]*tombstoneRow
	cleaned    map[uuid.UUID]struct{} // deletions whose data points can no longer be written

	most int                 // memories of a data point that the page deletes; more are left to a follow-up
	last eventstore.Position // of the page
}

// apply folds one event.
func (f *fold) apply(decoded eventstore.DecodedEvent) error {
	owner := stream.Owner(decoded.Stream)
	switch e := decoded.Event.(type) {
	case *memory.Derived:
		f.replaceMemories(decoded.Position, owner, e)
	case *datapoint.Deleted:
		f.remove(owner, e.ProjectID, e.DeletionID)
	case *deletion.FactsKept:
		f.remove(e.DataPoint, e.ProjectID, owner)
	case *deletion.Cleaned:
		f.cleaned[owner] = struct{}{}
	}
	return nil
}

// replaceMemories sets the memories of a revision. Historic revisions are never derived, so a
// higher number means a newer revision.
func (f *fold) replaceMemories(at eventstore.Position, dataPoint uuid.UUID, e *memory.Derived) {
	if f.tombstones[dataPoint] != nil {
		return
	}
	key := revisionKey{dataPoint: dataPoint, revision: e.Revision}
	row := f.captured[dataPoint]
	if row == nil {
		row = &capturedRow{project: e.ProjectID}
		f.captured[dataPoint] = row
	}
	if row.revision >= e.Revision {
		f.replaced[key] = struct{}{}
	} else {
		row.revision, row.position, row.dirty = e.Revision, at, true
	}
	f.derived[key] = &derivation{event: e, position: at}
}

// remove deletes everything derived from a data point, and makes the fold ignore what is derived
// later.
func (f *fold) remove(dataPoint, project, deletion uuid.UUID) {
	if f.tombstones[dataPoint] == nil {
		f.tombstones[dataPoint] = &tombstoneRow{project: project, deletion: deletion, dirty: true}
	}
	delete(f.captured, dataPoint)
	for key := range f.derived {
		if key.dataPoint == dataPoint {
			delete(f.derived, key)
			delete(f.replaced, key)
		}
	}
}
