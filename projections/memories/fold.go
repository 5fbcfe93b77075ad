package memories

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/table"
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
	DataPoint uuid.UUID           `db:"data_point"`
	Project   uuid.UUID           `db:"project_id,once"`
	Revision  int                 `db:"revision"`
	Position  eventstore.Position `db:"position"`
	dirty     bool
}

// tombstoneRow is a row of table gone: a deleted data point whose streams may still be written.
type tombstoneRow struct {
	DataPoint uuid.UUID `db:"data_point"`
	Project   uuid.UUID `db:"project_id"`
	Deletion  uuid.UUID `db:"deletion_id"`
	dirty     bool
}

// memoryRow is a row of table memories.
type memoryRow struct {
	ID           uuid.UUID           `db:"id"`
	Project      uuid.UUID           `db:"project_id"`
	DataPoint    uuid.UUID           `db:"data_point"`
	Revision     int                 `db:"revision"`
	Ordinal      int                 `db:"ordinal"`
	Kind         string              `db:"kind"`
	Content      []byte              `db:"content"`
	Excerpt      []byte              `db:"excerpt"`
	Start        int                 `db:"span_start"`
	End          int                 `db:"span_end"`
	Subject      uuid.UUID           `db:"subject,null"`
	Attribute    uuid.UUID           `db:"attribute"`
	OccurredAt   time.Time           `db:"occurred_at"`
	ResolvedFrom *time.Time          `db:"resolved_from"`
	ResolvedTo   *time.Time          `db:"resolved_to"`
	DerivedAt    time.Time           `db:"derived_at"`
	Position     eventstore.Position `db:"position"`
}

// edgeRow is a row of table edges.
type edgeRow struct {
	Input     uuid.UUID `db:"input_id"`
	Derived   uuid.UUID `db:"derived_id"`
	Project   uuid.UUID `db:"project_id"`
	DataPoint uuid.UUID `db:"data_point"`
}

var (
	captured   = table.New[capturedRow](Name, schema, "captured")
	tombstones = table.New[tombstoneRow](Name, schema, "gone")
	memories   = table.New[memoryRow](Name, schema, "memories")
	edges      = table.New[edgeRow](Name, schema, "edges")
)

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
		row = &capturedRow{DataPoint: dataPoint, Project: e.ProjectID}
		f.captured[dataPoint] = row
	}
	if row.Revision >= e.Revision {
		f.replaced[key] = struct{}{}
	} else {
		row.Revision, row.Position, row.dirty = e.Revision, at, true
	}
	f.derived[key] = &derivation{event: e, position: at}
}

// remove deletes everything derived from a data point, and makes the fold ignore what is derived
// later.
func (f *fold) remove(dataPoint, project, deletion uuid.UUID) {
	if f.tombstones[dataPoint] == nil {
		f.tombstones[dataPoint] = &tombstoneRow{
			DataPoint: dataPoint, Project: project, Deletion: deletion, dirty: true,
		}
	}
	delete(f.captured, dataPoint)
	for key := range f.derived {
		if key.dataPoint == dataPoint {
			delete(f.derived, key)
			delete(f.replaced, key)
		}
	}
}
