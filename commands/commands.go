// Package commands is the write side. Each command reads the current state, decides, and appends at
// the stream revision that it read; runDecision is the engine. Ingest, IngestBatch and the fan-outs
// are where to start reading.
package commands

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/auth"
)

// Call is the request that a command serves.
type Call struct {
	Principal auth.Principal
	RequestID uuid.UUID
	// ReceivedAt is the time of the request, in UTC, at microsecond precision.
	ReceivedAt time.Time
}

// DataPoint is one data point as sent, already checked against the limits. Nil means omitted.
type DataPoint struct {
	Content   string
	ID        *string
	Label     *string
	Timestamp *time.Time
	// Metadata is JSON as sent; nil when omitted, "null" when the caller sent null.
	Metadata json.RawMessage
	// Audience is a slug; nil or "project" means project-visible.
	Audience *string
	Identity *string
}

// The statuses of a receipt.
const (
	StatusQueued    = "queued"
	StatusCompleted = "completed"
)

// Receipt is the answer to a single send.
type Receipt struct {
	ProjectID   int64     `json:"projectId"`
	IngestionID uuid.UUID `json:"ingestionId"`
	SourceID    string    `json:"sourceId"`
	Status      string    `json:"status"`
	// Unchanged is true, or null if something changed.
	Unchanged *bool `json:"unchanged"`
	// CreditTenths is what this call was charged: nothing if it repeats an idempotency key.
	CreditTenths int64 `json:"-"`
}

// BatchReceipt is the answer to a batch. Status and Unchanged describe it as a whole.
type BatchReceipt struct {
	ProjectID   int64         `json:"projectId"`
	IngestionID uuid.UUID     `json:"ingestionId"`
	Status      string        `json:"status"`
	Unchanged   *bool         `json:"unchanged"`
	Items       []ItemReceipt `json:"items"`
	// CreditTenths is what this call was charged: nothing if it repeats an idempotency key.
	CreditTenths int64 `json:"-"`
}

// ItemReceipt is the answer to one item, in the order sent.
type ItemReceipt struct {
	Ordinal   int    `json:"ordinal"`
	SourceID  string `json:"sourceId"`
	Status    string `json:"status"`
	Unchanged *bool  `json:"unchanged"`
}

// DeletionReceipt is the answer to a deletion by source ids: each id once, in the order sent.
type DeletionReceipt struct {
	OperationID uuid.UUID `json:"operationId"`
	IDs         []string  `json:"ids"`
}

// ProjectReceipt is the answer to the creation of a project.
type ProjectReceipt struct {
	ID        uuid.UUID
	Slug      string
	Name      string
	CreatedAt time.Time
	// Metered reports whether the credits of the organization are counted.
	Metered bool
}

// KeyReceipt is the answer to the creation of a key. Key is the clear value, shown only here.
type KeyReceipt struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	KeyPrefix string    `json:"keyPrefix"`
	KeySuffix string    `json:"keySuffix"`
	CreatedAt time.Time `json:"createdAt"`
	Key       string    `json:"key"`
}
