package datapoints

import (
	"time"

	"github.com/google/uuid"

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
	audience   uuid.UUID
	occurredAt time.Time
	send       uuid.UUID
	acceptedAt time.Time
	position   eventstore.Position

	dirty bool
}

// revision is a row of table revisions.
type revision struct {
	dataPoint uuid.UUID
	event     *datapoint.RevisionAccepted
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
