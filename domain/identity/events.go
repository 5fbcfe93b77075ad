// Package identity is one record of the identity directory, and the bulk write of many.
//
// Each event of a record carries the record as it stands behind it, so a decision reads the last event of the stream only.
// Streams of records are erasable: a removal is the end of all text before it.
package identity

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
)

// Origin says what created a record.
type Origin string

// The origins. The API sets OriginAPI, OriginIngest and OriginAudience, the console OriginCSV and OriginConsole, a sign-in
// OriginLogin; OriginConnector and OriginLink are reserved, and nothing sets them.
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

// Traits are the traits of a record, inline or, where they are too big for an event, as one JSON object in a blob of the identity.
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

// Appeared creates the record, without traits. Where there is one already, it changes nothing.
type Appeared struct {
	ProjectID  uuid.UUID `json:"projectId"`
	Identity   string    `json:"identity"`
	Origin     Origin    `json:"origin"`
	AppearedAt time.Time `json:"appearedAt"`
}

// EventType implements event.Event.
func (Appeared) EventType() string { return "identity.appeared.v1" }

// TraitsReplaced creates the record or replaces all of its traits. Record is what stands behind it.
type TraitsReplaced struct {
	ProjectID uuid.UUID `json:"projectId"`
	Record    Record    `json:"record"`
}

// EventType implements event.Event.
func (TraitsReplaced) EventType() string { return "identity.traits-replaced.v1" }

// Patch is a change of some traits: those in Set are set, those in Removed go, all others stay. A big one is a blob of the
// identity: a JSON object of strings and nulls.
type Patch struct {
	Set     map[string]string `json:"set,omitempty"`
	Removed []string          `json:"removed,omitempty"`
	Blob    *blob.Ref         `json:"blob,omitempty"`
}

// TraitsMerged creates the record or changes some of its traits. Record is what stands behind it, as far as its decision knew:
// where a bulk write was committed before it and not fanned out, Patch says what it changes of that (see BulkRowApplied).
type TraitsMerged struct {
	ProjectID uuid.UUID `json:"projectId"`
	Patch     Patch     `json:"patch"`
	Record    Record    `json:"record"`
}

// EventType implements event.Event.
func (TraitsMerged) EventType() string { return "identity.traits-merged.v1" }

// The statuses of a bulk row.
const (
	Created = "created"
	Updated = "updated"
)

// BulkRowApplied is a row of a committed bulk write in the stream of its record. It takes effect at Commit, the log position of
// bulk.accepted. Where later effects stand before it in the stream (History), Record is what stands at the head with the row under
// those effects, and nil where the head is a removal; else Record is the row's own.
type BulkRowApplied struct {
	ProjectID uuid.UUID `json:"projectId"`
	BulkID    uuid.UUID `json:"bulkId"`
	Ordinal   int       `json:"ordinal"`
	Commit    uint64    `json:"commit"`
	Status    string    `json:"status"`
	History   bool      `json:"history"`
	Record    *Record   `json:"record,omitempty"`
}

// EventType implements event.Event.
func (BulkRowApplied) EventType() string { return "identity.bulk-row-applied.v1" }

// Removed ends the record and its membership in every audience. What comes later begins anew.
type Removed struct {
	ProjectID uuid.UUID `json:"projectId"`
	RequestID uuid.UUID `json:"requestId"`
	RemovedAt time.Time `json:"removedAt"`
}

// EventType implements event.Event.
func (Removed) EventType() string { return "identity.removed.v1" }

// Cleared says that everything before the removal at stream revision Removal was cut off and its blobs ended, and that it is gone from
// the disks that the service cleans.
type Cleared struct {
	ProjectID uuid.UUID `json:"projectId"`
	Removal   int64     `json:"removal"`
	ClearedAt time.Time `json:"clearedAt"`
}

// EventType implements event.Event.
func (Cleared) EventType() string { return "identity.cleared.v1" }
