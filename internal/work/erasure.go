package work

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/eventstore"
)

// Erasure is a data point that a fanned-out deletion took, and whose facts are not retained yet.
type Erasure struct {
	ProjectID  uuid.UUID
	DataPoint  uuid.UUID
	DeletionID uuid.UUID
	// Position is that of the deletion of the data point.
	Position eventstore.Position
}

// Facts are what the tables know of a data point whose own stream can no longer be read.
type Facts struct {
	ProjectID uuid.UUID // zero if they know nothing of it
	// DeletedAt is zero for a live data point.
	DeletedAt time.Time
	// Newest is its newest revision, 0 for none.
	Newest int
	// Items are those that created a revision, by revision.
	Items []deletion.RetainedFact
}

// Deletion is a fanned-out deletion that is not cleaned, and that retains the facts of all its data
// points. The streams of its data points and its blobs are tombstoned, or about to be.
type Deletion struct {
	ProjectID  uuid.UUID
	ID         uuid.UUID
	AcceptedAt time.Time
	Position   eventstore.Position
}

// Removal is the removal of an identity record that is not cleared.
type Removal struct {
	ProjectID  uuid.UUID
	IdentityID uuid.UUID
	// Revision is that of the removal in the stream of the record.
	Revision eventstore.Revision
	// RemovedAt is the time of the request. Its own process truncates a recent one.
	RemovedAt time.Time
	// Position is that of the removal.
	Position eventstore.Position
}

// Blob is a blob that nothing refers to. It may be swept once its owner's streams confirm that.
type Blob struct {
	ProjectID uuid.UUID
	Stream    string
	// Owner is a data point, the send of a stage, an identity, a bulk write of identities, or the
	// project of audiences.
	Owner    uuid.UUID
	Deadline time.Time
	// Stage is true for the stage of a batch that is fanned out or deleted. It has no deadline.
	Stage bool
}

// Open counts the pending work of the finisher.
type Open struct {
	// FanOuts are committed batches, bulk writes and deletions whose fan-out is pending.
	FanOuts int `json:"fanOuts"`
	// Deletions are those that are not cleaned, and DataPoints their data points.
	Deletions  int `json:"deletions"`
	DataPoints int `json:"dataPoints"`
	// Identities are the removed identities that are not cleared, and the removed people.
	Identities int `json:"identities"`
	// Blobs are those that nothing refers to. Until is when the last of them may be swept.
	Blobs int        `json:"blobs"`
	Until *time.Time `json:"until,omitempty"`
}
