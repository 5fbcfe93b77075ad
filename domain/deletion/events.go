// Package deletion is one deletion: its commit, its fan-out, the facts that outlive what it erased, and the end of its cleaning.
package deletion

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/ingestion"
)

// Target is a data point that the deletion takes.
type Target struct {
	DataPoint uuid.UUID `json:"dataPoint"`
	// Decided is the stream revision that the deletion was decided on.
	Decided int64 `json:"decided"`
}

// Accepted commits a deletion of several ids, or of a send. Where IngestionID is set, a data point is
// taken only where the newest revision is still that send's.
type Accepted struct {
	ProjectID   uuid.UUID `json:"projectId"`
	IngestionID uuid.UUID `json:"ingestionId,omitzero"`
	RequestID   uuid.UUID `json:"requestId"`
	Principal   string    `json:"principal"`
	FanOut      uuid.UUID `json:"fanOut"`
	Targets     []Target  `json:"targets"`
	AcceptedAt  time.Time `json:"acceptedAt"`
}

// EventType implements event.Event.
func (Accepted) EventType() string { return "deletion.accepted.v1" }

// FannedOut says that every target was deleted, or (Kept) was left because a later send revised it.
type FannedOut struct {
	ProjectID uuid.UUID   `json:"projectId"`
	Deleted   []uuid.UUID `json:"deleted"`
	Kept      []uuid.UUID `json:"kept,omitempty"`
}

// EventType implements event.Event.
func (FannedOut) EventType() string { return "deletion.fanned-out.v1" }

// Fact is what outlives an item of an erased data point.
type Fact struct {
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
	// Historic is true where the event of the item stood behind later effects (datapoint.Standing).
	Historic bool `json:"historic,omitempty"`
	// AuthorID is the directory record of the author (stream.IdentityID), zero where the item named none, or was erased before
	// this was kept.
	AuthorID uuid.UUID `json:"authorId,omitzero"`
	// Batch is true for an item of a batch, which had a stage. It is known only where FactsKept.Ranged.
	Batch bool `json:"batch,omitempty"`
	// SearchableAt is since when all of the send was searchable, if that was known when the fact
	// was retained. It replaces, for a replay that finds the data point erased, what a
	// pipeline.Searchable recorded of the send. It is zero for an item that created no revision.
	SearchableAt time.Time `json:"searchableAt,omitzero"`
}

// Brought reports whether the item brought a revision.
func (f Fact) Brought() bool { return f.Outcome == ingestion.Created || f.Outcome == ingestion.Updated }

// FactsKept keeps the facts of one erased data point, one of every item that its stream holds, in the order of the stream,
// before its streams are tombstoned. DeletedAt is that of the datapoint.Deleted.
//
// Facts that are too many for one event are in several: each covers the stream revisions of the data point from From up to
// To, without To. Complete is true in the last. Earlier versions name no range: in theirs the fact of the newest revision is
// in each event.
type FactsKept struct {
	ProjectID uuid.UUID `json:"projectId"`
	DataPoint uuid.UUID `json:"dataPoint"`
	Facts     []Fact    `json:"facts"`
	Blobs     []string  `json:"blobs,omitempty"`
	DeletedAt time.Time `json:"deletedAt"`
	From      int64     `json:"from,omitempty"`
	To        int64     `json:"to,omitempty"`
	Complete  bool      `json:"complete,omitempty"`
	// Newest is the revision that was the newest one when the data point was deleted.
	Newest int `json:"newest,omitempty"`
}

// Ranged reports whether the event names the stream revisions that it covers.
func (e FactsKept) Ranged() bool { return e.To > 0 || e.Complete }

// Standing is the revision that stood when the data point was deleted, 0 for none.
func (e FactsKept) Standing() int {
	if e.Ranged() {
		return e.Newest
	}
	newest := 0
	for _, fact := range e.Facts {
		if fact.Brought() && !fact.Historic {
			newest = max(newest, fact.Revision)
		}
	}
	return newest
}

// EventType implements event.Event.
func (FactsKept) EventType() string { return "deletion.facts-kept.v3" }

// UpFactsKept reads the first version, which kept no authors, and the second, which named no range.
func UpFactsKept(payload json.RawMessage) (newer string, up json.RawMessage, err error) {
	return FactsKept{}.EventType(), payload, nil
}

// Cleaned says that the streams are tombstoned and that no table and no index holds the text any more.
type Cleaned struct {
	ProjectID uuid.UUID `json:"projectId"`
	CleanedAt time.Time `json:"cleanedAt"`
}

// EventType implements event.Event.
func (Cleaned) EventType() string { return "deletion.cleaned.v1" }
