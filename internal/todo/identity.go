package todo

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

// Removal is the removal of a directory record whose text was not said to be cut off, and gone from the disk.
type Removal struct {
	ProjectID  uuid.UUID
	IdentityID uuid.UUID
	// Revision is that of the removal in the stream of the record.
	Revision eventstore.Revision
	// RemovedAt is the time of the request, for those who leave it a moment to finish by itself.
	RemovedAt time.Time
	// Position is that of the removal.
	Position eventstore.Position
}

// Bulk is a committed bulk write of identities whose fan-out is not known to be complete.
type Bulk struct {
	ProjectID uuid.UUID
	ID        uuid.UUID
	// AcceptedAt is the time of the request, for those who leave it a moment to finish by itself.
	AcceptedAt time.Time
	// Position is that of the commit.
	Position eventstore.Position
}
