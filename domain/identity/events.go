// Package identity is one record of the identity directory, and the bulk write of many.
//
// Each event of a record carries the record after it, so a decision reads only the last event of
// the stream. Streams of records are erasable: a removal ends all text before it.
package identity

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
)

// Origin is what created a record.
type Origin string

// The origins. The API sets OriginAPI, OriginIngest and OriginAudience, the console OriginCSV and
// OriginConsole, a sign-in OriginLogin. OriginConnector and OriginLink are reserved.
const (
	OriginAPI       Origin = "api"
	OriginIngest    Origin = "ingest"
	OriginCSV       Origin = "csv"
	OriginAudience  Origin = "audience"
	OriginConnector Origin = "connector"
	OriginConsole   Origin = "console"
	OriginLogin     Origin = "login"
	OriginLink      Origin = "link"
)

// Traits are the traits of a record: inline or, if they are too big for an event, as a JSON object
// in a blob of the identity.
type Traits struct {
	Inline map[string]string `json:"inline,omitempty"`
	Blob   *blob.Ref         `json:"blob,omitempty"`
}

// Record is a directory record.
type Record struct {
	Identity  string    `json:"identity"`
	Traits    Traits    `json:"traits"`
	Origin    Origin    `json:"origin"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// Appeared creates the record, without traits. It changes nothing if the record exists.
type Appeared struct {
	ProjectID  uuid.UUID `json:"projectId"`
	Identity   string    `json:"identity"`
	Origin     Origin    `json:"origin"`
	AppearedAt time.Time `json:"appearedAt"`
}

func (Appeared) EventType() string { return "identity.appeared.v1" }

// TraitsReplaced creates the record or replaces all of its traits. Record is the record after it.
type TraitsReplaced struct {
	ProjectID uuid.UUID `json:"projectId"`
	Record    Record    `json:"record"`
}

func (TraitsReplaced) EventType() string { return "identity.traits-replaced.v1" }

// Patch is a change of some traits: it sets those of Set, removes those of Removed, and leaves the
// others. A big one is in a blob of the identity: a JSON object of strings and nulls.
type Patch struct {
	Set     map[string]string `json:"set,omitempty"`
	Removed []string          `json:"removed,omitempty"`
	Blob    *blob.Ref         `json:"blob,omitempty"`
}

// TraitsMerged creates the record or changes some of its traits. Record is the record after it, as
// its decision knew it. If a bulk write was committed before it and not fanned out, Patch is what
// it changes of that (see BulkRowApplied).
type TraitsMerged struct {
	ProjectID uuid.UUID `json:"projectId"`
	Patch     Patch     `json:"patch"`
	Record    Record    `json:"record"`
}

func (TraitsMerged) EventType() string { return "identity.traits-merged.v1" }

// The statuses of a bulk row.
const (
	Created = "created"
	Updated = "updated"
)

// BulkRowApplied is a row of a committed bulk write in the stream of its record. It takes effect at
// Commit, the position of bulk.accepted. If later effects are stored before it in the stream
// (History), Record is the record at the head of the stream with the row applied before those
// effects, and nil if the head is a removal. Otherwise Record is the row's own.
type BulkRowApplied struct {
	ProjectID uuid.UUID `json:"projectId"`
	BulkID    uuid.UUID `json:"bulkId"`
	Ordinal   int       `json:"ordinal"`
	Commit    uint64    `json:"commit"`
	Status    string    `json:"status"`
	History   bool      `json:"history"`
	Record    *Record   `json:"record,omitempty"`
}

func (BulkRowApplied) EventType() string { return "identity.bulk-row-applied.v1" }

// Removed removes the record and its membership in every audience. Later events create a new
// record.
type Removed struct {
	ProjectID uuid.UUID `json:"projectId"`
	RequestID uuid.UUID `json:"requestId"`
	RemovedAt time.Time `json:"removedAt"`
}

func (Removed) EventType() string { return "identity.removed.v1" }

// Cleared records that everything before the removal at stream revision Removal is truncated, its
// blobs are tombstoned, and nothing of it is left on the disks that the service cleans.
type Cleared struct {
	ProjectID uuid.UUID `json:"projectId"`
	Removal   int64     `json:"removal"`
	ClearedAt time.Time `json:"clearedAt"`
}

func (Cleared) EventType() string { return "identity.cleared.v1" }
