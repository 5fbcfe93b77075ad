// Package commands is the write side. Each command reads the current state, decides, and appends at
// the stream revision that it read; runDecision is the engine. Ingest, IngestBatch and the fan-outs
// are where to start reading.
package commands

import (
	"cmp"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/fields"
)

// Call is the request that a command serves.
type Call struct {
	Principal auth.Principal
	RequestID uuid.UUID
	// ReceivedAt is the time of the request, in UTC, at microsecond precision.
	ReceivedAt time.Time
	// Reason is why an operator makes the call, as that person wrote it, "" for none.
	Reason string
	// Origin is that of the identities that the call creates, "" for the usual one of the caller.
	Origin identity.Origin
	// Own bounds what a single send or a deletion by source ids may change to data points whose newest revision this
	// identity wrote, "" for those without an author; nil bounds nothing.
	Own *string
	// KeepsAudience keeps the audience of a data point that a single send without one names; else it becomes
	// project-visible.
	KeepsAudience bool
	// PrivateIfNew makes a new data point that a single send without an audience brings private to its author.
	PrivateIfNew bool
	// Placed takes the audience that the data point of a single send is in then, unless a repeated idempotency key answers
	// it; nil takes nothing.
	Placed func(audience uuid.UUID)
}

// origin is the origin of the identities that the call creates.
func (c Call) origin() identity.Origin {
	usual := identity.OriginAPI
	if c.Principal.Kind == auth.Person {
		usual = identity.OriginConsole
	}
	return cmp.Or(c.Origin, usual)
}

// DataPoint is one data point as sent, already checked against the limits.
type DataPoint = fields.DataPoint

// The statuses of a receipt.
const (
	StatusQueued    = "queued"
	StatusCompleted = "completed"
)

// Receipt is the answer to a single send.
type Receipt struct {
	ProjectID   int64
	IngestionID uuid.UUID
	SourceID    string
	Status      string
	// Unchanged is true, or null if something changed.
	Unchanged *bool
	// CreditTenths is what this call was charged: nothing if it repeats an idempotency key.
	CreditTenths int64
}

// BatchReceipt is the answer to a batch. Status and Unchanged describe it as a whole.
type BatchReceipt struct {
	ProjectID   int64
	IngestionID uuid.UUID
	Status      string
	Unchanged   *bool
	Items       []ItemReceipt
	// CreditTenths is what this call was charged: nothing if it repeats an idempotency key.
	CreditTenths int64
}

// ItemReceipt is the answer to one item, in the order sent.
type ItemReceipt struct {
	Ordinal   int
	SourceID  string
	Status    string
	Unchanged *bool
}

// DeletionReceipt is the answer to a deletion by source ids: each id once, in the order sent.
type DeletionReceipt struct {
	OperationID uuid.UUID
	IDs         []string
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
	ID        string
	Name      string
	KeyPrefix string
	KeySuffix string
	CreatedAt time.Time
	Key       string
}
