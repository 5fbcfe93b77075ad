// Package erasure is the erasure of a person from a project: what was deleted, forgotten and purged, until nothing of
// the person is left. Its events hold ids and counts. The name, which the steps need, is in a row of schema ops that
// goes when the process ends.
package erasure

import (
	"time"

	"github.com/google/uuid"
)

// Requested begins the erasure of a person.
type Requested struct {
	ProjectID uuid.UUID `json:"projectId"`
	// RecordID is the identity record of the person (stream.IdentityID), whether or not there is one.
	RecordID    uuid.UUID `json:"recordId"`
	RequestedAt time.Time `json:"requestedAt"`
}

func (Requested) EventType() string { return "erasure.requested.v1" }

// DataPointsDeleted records a deletion of data points of the person.
type DataPointsDeleted struct {
	ProjectID  uuid.UUID `json:"projectId"`
	DeletionID uuid.UUID `json:"deletionId"`
	DataPoints int       `json:"dataPoints"`
}

func (DataPointsDeleted) EventType() string { return "erasure.data-points-deleted.v1" }

// PersonForgotten records that the identity record is removed and the request log blanked.
type PersonForgotten struct {
	ProjectID uuid.UUID `json:"projectId"`
	// Record reports whether there was a record. Calls is how many calls were blanked: all of the project. Called reports
	// whether one of them was a call as the person.
	Record bool `json:"record,omitempty"`
	Calls  int  `json:"calls"`
	Called bool `json:"called,omitempty"`
}

func (PersonForgotten) EventType() string { return "erasure.person-forgotten.v1" }

// Purge counts what a purge of the whole service did, which serves every deletion: deletions that were recorded as
// cleaned, removed identities as cleared, ended streams, swept blobs, vacuumed tables and rewritten indexes. Store is
// what became of the files of the event store.
type Purge struct {
	Deletions  int    `json:"deletions"`
	Identities int    `json:"identities"`
	Streams    int    `json:"streams"`
	Blobs      int    `json:"blobs"`
	Tables     int    `json:"tables"`
	Indexes    int    `json:"indexes"`
	Store      string `json:"store"`
}

// Purged records that the disks were purged after the person was forgotten.
type Purged struct {
	ProjectID uuid.UUID `json:"projectId"`
	Purge
}

func (Purged) EventType() string { return "erasure.purged.v1" }

// Ended ends the process.
type Ended struct {
	ProjectID uuid.UUID `json:"projectId"`
	// WroteAgain is true if the person still wrote after Rounds rounds: what was written last is not erased.
	WroteAgain bool      `json:"wroteAgain,omitempty"`
	EndedAt    time.Time `json:"endedAt"`
}

func (Ended) EventType() string { return "erasure.ended.v1" }
