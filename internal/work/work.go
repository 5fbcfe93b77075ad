// Package work holds the rows of the work lists that projections keep for the write side: for the
// worker, the confirmer, the embedder, the finisher and the metering.
//
// Commands and projections may not import each other. Commands declare the queries that they need as
// interfaces over these types, and projections implement them. A work list is a hint: what is done
// about a row is decided on its stream.
package work

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/metering"
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

// Charge is a number of recalls and of received events of a project in a month that a flush is to
// append to the log.
type Charge struct {
	FlushID        uuid.UUID
	ProjectID      uuid.UUID
	OrganizationID uuid.UUID
	Month          string
	Recalls        int64
	RecallTenths   int64
	WebhookEvents  int64
	WebhookTenths  int64
	Seen           []metering.Seen
}

// Due is the age from which counts are flushed to the log. The zero value flushes everything.
type Due struct {
	// Sum is the average age of the recalls of a project: from half of it to one and a half, so
	// that projects are not due all at once.
	Sum time.Duration
	// Seen is the least age of a seen identity.
	Seen time.Duration
}

// Reservation is what one try of a send holds of the limits of its organization.
type Reservation struct {
	SendID, Try uuid.UUID
}

// Person is a person who is removed, or a member of no organization, or has several addresses, or whose
// address was claimed and nothing followed; or the id of an erased person who is still a member.
type Person struct {
	ID uuid.UUID
	// Addresses are the streams of the addresses that are claimed for the person, none if nothing of the
	// person but the membership is known. ClaimedAt is the first claim.
	Addresses []string
	ClaimedAt time.Time
	// Organizations are those that the person is a member of.
	Organizations []uuid.UUID
}

// Offer is the address of an offer that has ended or expired, or of one that was never made.
type Offer struct {
	ID, Organization uuid.UUID
	// AddressedAt is zero for an offer that its command knows to have ended.
	AddressedAt time.Time
}

// Visits are those of a person, or of operators, to an organization in a month. The person is removed, or the month is
// older than the organization keeps.
type Visits struct {
	Stream       string
	Organization uuid.UUID
	// Person is zero for operators.
	Person uuid.UUID
}

// ReadsDay is a day of the read records of a project.
type ReadsDay struct {
	ProjectID, OrganizationID uuid.UUID
	// Day is in UTC, as stream.ReadsName has it.
	Day string
}

// CountOpen counts the pending fan-outs and what has yet to be erased: fanOuts of data points, the bulk writes and
// removals of identities, and removed people.
func CountOpen(
	ctx context.Context,
	fanOuts interface {
		Open(ctx context.Context) (Open, error)
	},
	identities interface {
		Open(ctx context.Context) (bulks, removals int, err error)
	},
	people interface {
		RemovedPeople(ctx context.Context) (int, error)
	},
) (Open, error) {
	open, err := fanOuts.Open(ctx)
	if err != nil {
		return open, err
	}
	bulks, removals, err := identities.Open(ctx)
	open.FanOuts += bulks
	if err != nil {
		return open, err
	}
	removed, err := people.RemovedPeople(ctx)
	open.Identities = removals + removed
	return open, err
}
