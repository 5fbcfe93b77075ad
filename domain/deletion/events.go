// Package deletion is one deletion: its commit, its fan-out, the facts that outlive what it erases,
// and the end of its cleaning.
package deletion

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/ingestion"
)

// Target is a data point that the deletion deletes.
type Target struct {
	DataPoint uuid.UUID `json:"dataPoint"`
	// Decided is the stream revision that the deletion was decided on, or Ended.
	Decided int64 `json:"decided"`
}

// Ended is Target.Decided of a live data point whose stream somebody else tombstoned. The deletion cannot be recorded
// in that stream, so the retained facts alone record it.
const Ended int64 = -2

// Accepted commits a deletion of several ids, or of a send. If IngestionID is set, a data point is
// deleted only if its newest revision is still that of the send.
type Accepted struct {
	ProjectID   uuid.UUID `json:"projectId"`
	IngestionID uuid.UUID `json:"ingestionId,omitzero"`
	RequestID   uuid.UUID `json:"requestId"`
	Principal   string    `json:"principal"`
	FanOut      uuid.UUID `json:"fanOut"`
	Targets     []Target  `json:"targets"`
	AcceptedAt  time.Time `json:"acceptedAt"`
}

func (Accepted) EventType() string { return "deletion.accepted.v1" }

// FannedOut records that every target was deleted, or (Kept) not, because a later send revised it.
type FannedOut struct {
	ProjectID uuid.UUID   `json:"projectId"`
	Deleted   []uuid.UUID `json:"deleted"`
	Kept      []uuid.UUID `json:"kept,omitempty"`
}

func (FannedOut) EventType() string { return "deletion.fanned-out.v1" }

// RetainedFact is what outlives an item of an erased data point.
type RetainedFact struct {
	IngestionID  uuid.UUID `json:"ingestionId"`
	Ordinal      int       `json:"ordinal"`
	Items        int       `json:"items"`
	RequestID    uuid.UUID `json:"requestId"`
	AcceptedAt   time.Time `json:"acceptedAt"`
	Bytes        int64     `json:"bytes"`
	CreditTenths int64     `json:"creditTenths"`
	Month        string    `json:"month"`
	// Outcome is what the item was answered with: created, updated, unchanged or moved.
	Outcome  string `json:"outcome"`
	Revision int    `json:"revision"`
	// Historic is true if the event of the item was stored after later effects (datapoint.States).
	Historic bool `json:"historic,omitempty"`
	// AuthorID is the identity record of the author (stream.IdentityID), zero if the item named none.
	AuthorID uuid.UUID `json:"authorId,omitzero"`
	// Batch is true for an item of a batch, which had a stage.
	Batch bool `json:"batch,omitempty"`
	// SearchableAt is since when all of the send was searchable, if that was known when the fact
	// was retained. It replaces, for a replay that finds the data point erased, what a
	// pipeline.Searchable recorded of the send. It is zero for an item that created no revision.
	SearchableAt time.Time `json:"searchableAt,omitzero"`
}

// CreatedRevision reports whether the item created a revision.
func (f RetainedFact) CreatedRevision() bool {
	return f.Outcome == ingestion.Created || f.Outcome == ingestion.Updated
}

// FactsKept retains the facts of one deleted data point before its streams are tombstoned: one of
// every item in its stream, in the order of the stream. DeletedAt is that of the datapoint.Deleted.
//
// Facts that are too many for one event are in several. Each covers the stream revisions of the
// data point from From up to, but without, To: also the datapoint.Deleted, which has a record and no
// fact. Complete is true in the last.
type FactsKept struct {
	// OrganizationID is the one that the leaves of the events name.
	OrganizationID uuid.UUID      `json:"organizationId"`
	ProjectID      uuid.UUID      `json:"projectId"`
	DataPoint      uuid.UUID      `json:"dataPoint"`
	Facts          []RetainedFact `json:"facts"`
	Blobs          []string       `json:"blobs,omitempty"`
	DeletedAt      time.Time      `json:"deletedAt"`
	From           int64          `json:"from,omitempty"`
	To             int64          `json:"to,omitempty"`
	Complete       bool           `json:"complete,omitempty"`
	// Newest is the revision that was the newest one when the data point was deleted, 0 for none.
	Newest int `json:"newest,omitempty"`
	// RequestID is that of the datapoint.Deleted.
	RequestID uuid.UUID `json:"requestId"`
	// Memories count what was derived, so that the ids of these memories (memory.ID) outlive them. They
	// are in the last parts.
	Memories []MemoryCount `json:"memories,omitempty"`
	// MemoriesTo is the revision of the stream of memories up to which, exclusive, the parts so far count
	// them and name their blobs.
	MemoriesTo int64 `json:"memoriesTo,omitempty"`
	// Records are those of the events of the data point from From on, MemoryRecords those of the events
	// of its memories before MemoriesTo. What is appended to the memories later has its records in
	// audit.RecordsKept.
	Records       audit.KeptList `json:"records,omitempty"`
	MemoryRecords audit.KeptList `json:"memoryRecords,omitempty"`
	// Principal is who deleted the data point, "" if an earlier version retained the facts. Single is as in
	// datapoint.Deleted.
	Principal string `json:"principal,omitempty" since:"2"`
	Single    bool   `json:"single,omitempty" since:"2"`
}

// BatchSends returns the sends of the facts that are batches, each at least once.
func (e FactsKept) BatchSends() []uuid.UUID {
	var sends []uuid.UUID
	for _, fact := range e.Facts {
		if fact.Batch {
			sends = append(sends, fact.IngestionID)
		}
	}
	return sends
}

// MemoryCount is how many memories were derived from a revision.
type MemoryCount struct {
	Revision int `json:"revision"`
	Count    int `json:"count"`
}

func (FactsKept) EventType() string { return "deletion.facts-kept.v1" }

// Cleaned records that the streams are tombstoned, and that no table and no index contains the text
// any more.
type Cleaned struct {
	ProjectID uuid.UUID `json:"projectId"`
	CleanedAt time.Time `json:"cleanedAt"`
}

func (Cleaned) EventType() string { return "deletion.cleaned.v1" }
