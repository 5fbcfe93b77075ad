// Package ingestion holds what concerns a send as a whole: whose idempotency key it is, the commit of a batch, its end, its retries.
package ingestion

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
)

// Failure codes of a stopped send.
const (
	ModelUnavailable        = "model-unavailable"
	ModelResponseUnreadable = "model-response-unreadable"
	IndexUnavailable        = "index-unavailable"
	ContentRejected         = "content-rejected"
	Internal                = "internal"
)

// Claimed ties an idempotency key to the payload of a keyed single send. A claim alone is no send.
type Claimed struct {
	ProjectID uuid.UUID `json:"projectId"`
	// Fingerprint is the HMAC of the canonical request without its key, in lower-case hexadecimal.
	Fingerprint string    `json:"fingerprint"`
	DataPoint   uuid.UUID `json:"dataPoint"`
	// RevisionRead is the stream revision the first try decided on: the send stands above it, if it stands.
	RevisionRead int64     `json:"revisionRead"`
	ClaimedAt    time.Time `json:"claimedAt"`
}

// EventType implements event.Event.
func (Claimed) EventType() string { return "ingestion.claimed.v1" }

// Item is one item of a committed batch, in the order sent.
type Item struct {
	DataPoint uuid.UUID `json:"dataPoint"`
	// Decided is the stream revision of the data point that the item was decided on, -1 for none.
	Decided int64 `json:"decided"`
	// Bytes is the size of the content in UTF-8. It is the price where the fan-out finds that the item brings a revision
	// (metering.IngestTenths), whatever the commit said.
	Bytes int64 `json:"bytes"`
	// CreditTenths is what the item counts for until then: its price, or 0 where it looked unchanged or moved when it was committed,
	// and then it takes nothing of a cap either. Earlier batches priced every item.
	CreditTenths int64 `json:"creditTenths"`
}

// Final reports whether the item brings no revision whatever others change between its decision and its fan-out, since nothing was
// reserved for one: it takes effect where it was decided, and not at the commit.
func (i Item) Final() bool { return i.CreditTenths == 0 }

// Accepted commits a batch. Its items are staged in a blob; from here on nothing is refused.
type Accepted struct {
	ProjectID   uuid.UUID `json:"projectId"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	RequestID   uuid.UUID `json:"requestId"`
	Principal   string    `json:"principal"`
	// FanOut is the command id that every fan-out of this batch appends under, whoever runs it.
	FanOut     uuid.UUID `json:"fanOut"`
	Stage      blob.Ref  `json:"stage"`
	Items      []Item    `json:"items"`
	AcceptedAt time.Time `json:"acceptedAt"`
	Month      string    `json:"month"`
}

// EventType implements event.Event.
func (Accepted) EventType() string { return "ingestion.accepted.v2" }

// UpAccepted reads the first version, which repeated the namespace of the project.
func UpAccepted(payload json.RawMessage) (newer string, up json.RawMessage, err error) {
	return Accepted{}.EventType(), payload, nil
}

// The outcomes of an item.
const (
	Created   = "created"   // the first revision of a source id
	Updated   = "updated"   // a new revision of a live one
	Unchanged = "unchanged" // nothing changed
	Moved     = "moved"     // only the audience changed
	Deleted   = "deleted"   // the data point was deleted
)

// Outcome is what fan-out made of an item. Revision is the revision it stands for, 0 where the data point was deleted first.
type Outcome struct {
	Outcome  string `json:"outcome"`
	Revision int    `json:"revision"`
}

// FannedOut says that every item of the batch stands in its own stream.
type FannedOut struct {
	ProjectID uuid.UUID `json:"projectId"`
	Outcomes  []Outcome `json:"outcomes"`
}

// EventType implements event.Event.
func (FannedOut) EventType() string { return "ingestion.fanned-out.v1" }

// Indexed records that all of the send was verified to be searchable. Most sends end by a
// pipeline.Searchable instead. Indexed is for a send that lost some of its data points to a
// deletion: a replay may know only from the deletion that they were part of it.
type Indexed struct {
	ProjectID uuid.UUID `json:"projectId"`
	IndexedAt time.Time `json:"indexedAt"`
}

// EventType implements event.Event.
func (Indexed) EventType() string { return "ingestion.indexed.v1" }

// Failed says that the send stopped: every item is done or failed, and this is the first failure.
type Failed struct {
	ProjectID uuid.UUID `json:"projectId"`
	Code      string    `json:"code"`
	Message   string    `json:"message"`
	FailedAt  time.Time `json:"failedAt"`
}

// EventType implements event.Event.
func (Failed) EventType() string { return "ingestion.failed.v1" }

// Retried puts the failed items of a stopped send back into the queue. Round counts from 1.
type Retried struct {
	ProjectID uuid.UUID `json:"projectId"`
	Round     int       `json:"round"`
	RequestID uuid.UUID `json:"requestId"`
	RetriedAt time.Time `json:"retriedAt"`
}

// EventType implements event.Event.
func (Retried) EventType() string { return "ingestion.retried.v1" }
