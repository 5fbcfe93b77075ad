// Package todo holds the rows of the to-do lists that projections keep for the pipeline and the finisher.
//
// Commands and projections may not import each other: commands declare the queries that they need as interfaces
// over these plain types, and package projections/datapoints answers them.
package todo

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

// The phases of an item that stands on a to-do list.
const (
	Queued     = "queued"
	Processing = "processing"
)

// Item is one revision of one data point whose memories are to be derived.
type Item struct {
	ProjectID   uuid.UUID
	IngestionID uuid.UUID
	DataPoint   uuid.UUID
	Ordinal     int
	Revision    int
	// Attempt is the number of the last attempt that was started in this round, 0 for none.
	Attempt int
	// Round counts the retries of the send, from 0.
	Round int
	// Phase is Queued, or Processing for an attempt whose worker let its lease run out.
	Phase string
	// Position is that of the event that brought the item to its phase.
	Position eventstore.Position
	// Suspect reports that an earlier lease ran out: its holder may have died of this item.
	Suspect bool
	// Text is what the revision says where the list has it at hand, nil where it is to be read from the data point's stream.
	Text *Text
}

// Claim is a request of a worker to the queue.
type Claim struct {
	// Holder holds the leases, until Until.
	Holder     string
	Now, Until time.Time
	Limit      int
	// After is the project after which the claim begins: the one that the previous claim returned,
	// zero at first.
	After uuid.UUID
}

// Failure is why a send stopped: a public failure code and a message without customer text.
type Failure struct {
	Code    string
	Message string
}

// Send is a send all of whose items have come to an end, and that was not confirmed yet.
type Send struct {
	ProjectID   uuid.UUID
	IngestionID uuid.UUID
	// Position is not below that of any of its captured items: what has passed it can serve the send.
	Position eventstore.Position
	// Round counts the retries of the send, from 0.
	Round int
	// Failure is that of the item that failed first, nil where none did.
	Failure *Failure
}

// Operation is a committed batch or deletion whose fan-out is not known to be complete.
type Operation struct {
	ProjectID uuid.UUID
	// Family is stream.Ingestion or stream.Deletion; with ID it names the stream.
	Family string
	ID     uuid.UUID
	// AcceptedAt is the time of the request, for those who leave it a moment to finish by itself.
	AcceptedAt time.Time
	// Position is that of the commit.
	Position eventstore.Position
}

// Erasure is a data point that a fanned-out deletion took, and whose facts are not kept yet.
type Erasure struct {
	ProjectID  uuid.UUID
	DataPoint  uuid.UUID
	DeletionID uuid.UUID
	// Position is that of the deletion of the data point.
	Position eventstore.Position
}

// Deletion is a fanned-out deletion with the facts kept of everything it took, that is not cleaned yet: the streams
// of its data points and the blobs are to be tombstoned, as far as an earlier try did not get to it.
type Deletion struct {
	ProjectID  uuid.UUID
	ID         uuid.UUID
	AcceptedAt time.Time
	DataPoints []uuid.UUID
	// Blobs are names of streams.
	Blobs    []string
	Position eventstore.Position
}
