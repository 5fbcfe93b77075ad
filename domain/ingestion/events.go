// Package ingestion is a send as a whole: its idempotency claim, the commit of a batch, its
// fan-out, its end and its retries.
package ingestion

import (
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

// Claimed ties an idempotency key to the payload of a single send. A claim without the send is not
// a send.
type Claimed struct {
	ProjectID uuid.UUID `json:"projectId"`
	// Fingerprint is the HMAC of the canonical request without its key, in lower-case hexadecimal.
	Fingerprint string    `json:"fingerprint"`
	DataPoint   uuid.UUID `json:"dataPoint"`
	// RevisionRead is the stream revision that the first try read: the send, if it is stored, is after
	// it.
	RevisionRead int64     `json:"revisionRead"`
	ClaimedAt    time.Time `json:"claimedAt"`
}

func (Claimed) EventType() string { return "ingestion.claimed.v1" }

// Item is one item of a committed batch, in the order sent.
type Item struct {
	DataPoint uuid.UUID `json:"dataPoint"`
	// Decided is the stream revision of the data point that the item was decided on, -1 for none.
	Decided int64 `json:"decided"`
	// Bytes is the size of the content in UTF-8. It determines the price (metering.IngestTenths) if
	// the fan-out finds that the item creates a revision, whatever the commit recorded.
	Bytes int64 `json:"bytes"`
	// CreditTenths is what the item counts for until then: its price, or 0 if it looked unchanged or
	// moved at the commit, and then it counts for no cap either.
	CreditTenths int64 `json:"creditTenths"`
}

// Final reports whether the item creates no revision, whatever other calls change between its decision
// and its fan-out, since nothing was reserved for one. It takes effect at its decision, and not at the
// commit.
func (i Item) Final() bool { return i.CreditTenths == 0 }

// Accepted commits a batch. Its items are staged in a blob. After it nothing is refused.
type Accepted struct {
	ProjectID   uuid.UUID `json:"projectId"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	RequestID   uuid.UUID `json:"requestId"`
	Principal   string    `json:"principal"`
	// FanOut is the command id under which every fan-out of this batch appends, in any process.
	FanOut     uuid.UUID `json:"fanOut"`
	Stage      blob.Ref  `json:"stage"`
	Items      []Item    `json:"items"`
	AcceptedAt time.Time `json:"acceptedAt"`
	Month      string    `json:"month"`
}

func (Accepted) EventType() string { return "ingestion.accepted.v1" }

// The outcomes of an item.
const (
	Created   = "created"   // the first revision of a source id
	Updated   = "updated"   // a new revision of a live one
	Unchanged = "unchanged" // nothing changed
	Moved     = "moved"     // only the audience changed
	Deleted   = "deleted"   // the data point was deleted
)

// Outcome is what the fan-out made of an item. Revision is that of the data point after it, 0 if
// the data point was deleted first.
type Outcome struct {
	Outcome  string `json:"outcome"`
	Revision int    `json:"revision"`
}

// CreatesRevision reports whether the item created a revision, and so costs credits.
func (o Outcome) CreatesRevision() bool { return o.Outcome == Created || o.Outcome == Updated }

// FannedOut records that every item of the batch is stored in the stream of its data point.
type FannedOut struct {
	ProjectID uuid.UUID `json:"projectId"`
	Outcomes  []Outcome `json:"outcomes"`
}

func (FannedOut) EventType() string { return "ingestion.fanned-out.v1" }

// Indexed records that all of the send was verified to be searchable. Most sends end by a
// pipeline.Searchable instead. Indexed is for a send that lost some of its data points to a
// deletion: a replay may know only from the deletion that they were part of it.
type Indexed struct {
	ProjectID uuid.UUID `json:"projectId"`
	IndexedAt time.Time `json:"indexedAt"`
}

func (Indexed) EventType() string { return "ingestion.indexed.v1" }

// Failed records that the send stopped: every item is done or failed, and this is the first
// failure.
type Failed struct {
	ProjectID uuid.UUID `json:"projectId"`
	Code      string    `json:"code"`
	Message   string    `json:"message"`
	FailedAt  time.Time `json:"failedAt"`
}

func (Failed) EventType() string { return "ingestion.failed.v1" }

// Retried puts the failed items of a stopped send back into the queue. Round counts from 1.
type Retried struct {
	ProjectID uuid.UUID `json:"projectId"`
	Round     int       `json:"round"`
	RequestID uuid.UUID `json:"requestId"`
	RetriedAt time.Time `json:"retriedAt"`
}

func (Retried) EventType() string { return "ingestion.retried.v1" }
