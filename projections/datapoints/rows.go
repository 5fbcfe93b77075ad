package datapoints

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/eventstore"
)

// dataPointRow is a row of table data_points.
type dataPointRow struct {
	id         uuid.UUID
	project    uuid.UUID
	sourceID   string
	revision   int
	captured   int
	memories   int
	memoryHead *int64 // stream revision after which only vectors may follow the memories, nil for none
	audience   uuid.UUID
	occurredAt time.Time
	send       uuid.UUID
	acceptedAt time.Time
	position   eventstore.Position
	author     *string
	labelKey   *string
	ranked

	derived *blob.Ref   // the blob of the memories still to be counted
	counted *scopeShare // what the stored row counts for, nil if there is none
	dirty   bool
}

// scopeShare is what a data point counts for in table scopes.
type scopeShare struct {
	scope    scope
	memories int
}

// scope is the key of a row of table scopes.
type scope struct{ project, audience uuid.UUID }

func (d *dataPointRow) share() *scopeShare {
	return &scopeShare{scope: scope{project: d.project, audience: d.audience}, memories: d.memories}
}

// revision is a row of table revisions.
type revision struct {
	dataPoint uuid.UUID
	event     *datapoint.RevisionAccepted
}

type revisionKey struct {
	dataPoint uuid.UUID
	number    int
}

// batchItem is an item of a committed batch that is not fanned out. It is charged by its size if it
// creates a revision.
type batchItem struct {
	dataPoint uuid.UUID
	bytes     int64
}

// deletionRow is a row of table deletions.
type deletionRow struct {
	id         uuid.UUID
	project    uuid.UUID
	send       uuid.UUID // zero for a deletion by source ids
	acceptedAt time.Time
	fannedOut  bool
	cleaned    bool
	position   eventstore.Position

	dirty bool
}

// erasure is a row of table erasures.
type erasure struct {
	dataPoint uuid.UUID
	project   uuid.UUID
	deletion  uuid.UUID
	factsKept bool
	blobs     []string
	position  eventstore.Position

	dirty bool
}
