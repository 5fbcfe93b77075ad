// Package work holds the rows of the work lists that projections keep for the write side: for the
// worker, the confirmer, the embedder, the finisher and the metering.
//
// Commands and projections may not import each other. Commands declare the queries that they need as
// interfaces over these types, and projections implement them. A work list is a hint: what is done
// about a row is decided on its stream.
package work

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

// The phases of an item on the list of derivation.
const (
	Queued     = "queued"
	Processing = "processing"
)

// Lane is a part of the queue of derivation. Sends of single data points are live, items of batches are
// bulk.
type Lane string

// The lanes, as stored.
const (
	LaneLive Lane = "live"
	LaneBulk Lane = "bulk"
)

// Item is one revision of one data point whose memories are to be derived.
type Item struct {
	ProjectID   uuid.UUID
	IngestionID uuid.UUID
	DataPoint   uuid.UUID
	Ordinal     int
	Revision    int
	// Attempt is the number of the last attempt that began in this round, 0 for none.
	Attempt int
	// Round counts the retries of the send, from 0.
	Round int
	// Lane is the lane that the item was leased from.
	Lane Lane
	// Phase is Queued, or Processing for an attempt whose lease ran out.
	Phase string
	// Position is that of the event that moved the item to its phase.
	Position eventstore.Position
	// Suspect reports that an earlier lease ran out: the item may have ended the process of its
	// holder.
	Suspect bool
	// Text is the text of the revision if the list has it, nil if it has to be read from the stream
	// of the data point.
	Text *Text
	// MemoryHead is where the stream of the data point's memories ended when the list was written, if it
	// ended with the memories of an earlier revision, or with vectors directly after them. Otherwise it is
	// nil, and the stream has to be read.
	MemoryHead *eventstore.Revision
}

// Text is the text of one revision.
type Text struct {
	Content string
	// Metadata is JSON as sent, empty for none.
	Metadata json.RawMessage
	// Label and Author are "" for none.
	Label, Author string
	OccurredAt    time.Time
}

// LeaseRequest is a request of a worker to the queue.
type LeaseRequest struct {
	// Holder holds the leases until Until.
	Holder     string
	Now, Until time.Time
	Limit      int
	Lane       Lane
	// After is the project after which the lease begins: the project that the previous request
	// returned for the lane, zero at first.
	After uuid.UUID
}

// Embedding is a captured revision that has no vectors of the configured model.
type Embedding struct {
	ProjectID uuid.UUID
	DataPoint uuid.UUID
	Revision  int
}

// Failure is why a send stopped: a public failure code and a message without customer text.
type Failure struct {
	Code    string
	Message string
}

// Send is a send whose items have all ended, and that is not confirmed.
type Send struct {
	ProjectID   uuid.UUID
	IngestionID uuid.UUID
	// Position is that of its last captured item, or later. A projection that has applied it has
	// applied the whole send.
	Position eventstore.Position
	// Round counts the retries of the send, from 0.
	Round int
	// Failure is that of the item that failed first, nil if none failed.
	Failure *Failure
}
