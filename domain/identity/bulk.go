package identity

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
)

// BulkTarget is the record that a row is about.
type BulkTarget struct {
	IdentityID uuid.UUID `json:"identityId"`
	// Decided is the stream revision of the record that the row was decided on, -1 for none.
	Decided int64 `json:"decided"`
}

// BulkAccepted commits a bulk write of distinct identities: each row replaces the traits of its
// record, or creates it. The rows are staged in a blob, one Row as JSON a line, in the order of
// Targets. After it nothing is refused.
type BulkAccepted struct {
	ProjectID uuid.UUID `json:"projectId"`
	RequestID uuid.UUID `json:"requestId"`
	Principal string    `json:"principal"`
	Origin    Origin    `json:"origin"`
	// FanOut is the command id under which every fan-out of this write appends, in any process.
	FanOut     uuid.UUID    `json:"fanOut"`
	Rows       blob.Ref     `json:"rows"`
	Targets    []BulkTarget `json:"targets"`
	AcceptedAt time.Time    `json:"acceptedAt"`
}

func (BulkAccepted) EventType() string { return "bulk.accepted.v1" }

// Row is one row of a staged bulk write.
type Row struct {
	Identity string            `json:"identity"`
	Traits   map[string]string `json:"traits"`
}

// BulkFannedOut records that every row is stored in the stream of its record. Statuses are Created
// or Updated, in the order of the targets.
type BulkFannedOut struct {
	ProjectID uuid.UUID `json:"projectId"`
	Statuses  []string  `json:"statuses"`
}

func (BulkFannedOut) EventType() string { return "bulk.fanned-out.v1" }
