package work

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/eventstore"
)

// Operation is a committed batch or deletion whose fan-out is pending.
type Operation struct {
	ProjectID uuid.UUID
	// Category is stream.Ingestion or stream.Deletion. With ID it names the stream.
	Category string
	ID       uuid.UUID
	// AcceptedAt is the time of the request. Its own process completes a recent one.
	AcceptedAt time.Time
	// Position is that of the commit.
	Position eventstore.Position
}

// Batch is a committed batch whose fan-out is pending, with the blob that holds its items.
type Batch struct {
	IngestionID uuid.UUID
	// Stage is "" if it is not known.
	Stage string
	// Abandoned is true for a batch that ended because its stage cannot be read.
	Abandoned bool
	// DataPoints are those of its data points that the query named.
	DataPoints []uuid.UUID
}

// Bulk is a committed bulk write of identities whose fan-out is pending.
type Bulk struct {
	ProjectID uuid.UUID
	ID        uuid.UUID
	// AcceptedAt is the time of the request. Its own process completes a recent one.
	AcceptedAt time.Time
	// Position is that of the commit.
	Position eventstore.Position
}

// RecordHead is an identity record as the events of its stream up to a revision made it.
type RecordHead struct {
	Revision eventstore.Revision
	// Record is the record without its traits, nil for none.
	Record *identity.Record
	// Hidden is true if nothing is known of the record except that it exists. Record is nil then.
	Hidden bool
}
