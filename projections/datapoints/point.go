package datapoints

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/eventstore"
)

// point is a row of table data_points.
type point struct {
	id         uuid.UUID
	project    uuid.UUID
	sourceID   string
	revision   int
	captured   int
	memories   int
	audience   uuid.UUID
	occurredAt time.Time
	send       uuid.UUID
	acceptedAt time.Time
	position   eventstore.Position

	derived *blob.Ref // where the memories lie that are to be counted yet
	counted *scoped   // what the stored row counts for, nil where there is none
	dirty   bool
}

// scoped is what a data point counts for in table scopes.
type scoped struct {
	scope    scope
	memories int
}

// scope is what a row of table scopes is about.
type scope struct{ project, audience uuid.UUID }

func (d *point) scoped() *scoped {
	return &scoped{scope: scope{project: d.project, audience: d.audience}, memories: d.memories}
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

// offered is an item of a committed batch before its fan-out is complete. The price of its size is charged where it brings a revision.
type offered struct {
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
