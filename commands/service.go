package commands

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
)

// The projections that answers wait for.
const (
	projectionAccess      = "access"
	projectionDataPoints  = "datapoints"
	projectionRecallIndex = "recallindex"
	projectionDirectory   = "directory"
	projectionUsage       = "usage"
)

// Sends finds the send that an id stands for, and never one of another project.
type Sends interface {
	// Targets are the data points of the items of a send that brought a revision, in order, also those that were deleted
	// since. An item that changed nothing is none. found is false only once the projection has passed the head of the log.
	Targets(ctx context.Context, project auth.Project, ingestionID uuid.UUID) (dataPoints []uuid.UUID, found bool, err error)
	// Pending are those of the data points that a committed batch of the project brings whose fan-out is not complete. It returns
	// once the projection has passed the head of the log.
	Pending(ctx context.Context, project auth.Project, dataPoints []uuid.UUID) (map[uuid.UUID]bool, error)
	// Deleted reports whether a send was deleted as a whole, by a deletion that was answered.
	Completed(ctx context.Context, project auth.Project, ingestionID uuid.UUID) (bool, error)
}

// DataPoints knows which data points were ever sent, as far as a projection has seen.
type DataPoints interface {
	// Sent are those of the data points that it has seen a send of, deleted ones too. Those whose deletion was answered are among
	// them, since that answer waits for it. For the rest it is a hint, which may be late.
	Sent(ctx context.Context, dataPoints []uuid.UUID) (map[uuid.UUID]struct{}, error)
}

// Config is what the write side needs.
type Config struct {
	Log    *Log
	Waiter Waiter
	Sends  Sends
	// DataPoints saves a batch the reads of what is new; nil where each is read.
	DataPoints DataPoints
	// Limits take what sends cost; nil bounds nothing.
	Limits  Limits
	HashKey []byte // key of the fingerprints, at least 32 bytes
	// Pipeline is false where background derivation is switched off: then nothing can be retried.
	Pipeline bool
	// Preparing saves a start the reads of organizations that are prepared; nil where each is read.
	Preparing Preparing
	// Vault keeps the clear values of project keys, sealed; nil keeps none.
	Vault Vault
	// Accounts say what organizations were charged and have left.
	Accounts Accounts
	// Tariff is the terms of the plans; nil is metering.DefaultTariff.
	Tariff metering.Tariff
	// Directory is asked before identities are written; nil in tests that write none.
	Directory Directory
	// Records save the put of an audience the reads of who has a record; nil where each is read.
	Records Records
	// SoleWriter is true where no other process writes the log: then what this one has seen of it holds until it writes itself.
	SoleWriter bool
	// Foreground counts the callers that wait for sends; nil counts nothing.
	Foreground *Foreground
}

// Service is the commands of the API.
type Service struct {
	Config
	authors   *authors
	registry  *registryReader
	audiences *audienceReader
}

// New makes the write side.
func New(cfg Config) *Service {
	if cfg.Foreground == nil {
		cfg.Foreground = &Foreground{}
	}
	if cfg.Tariff == nil {
		cfg.Tariff = metering.DefaultTariff()
	}
	return &Service{Config: cfg, authors: newAuthors(cfg.SoleWriter), registry: &registryReader{log: cfg.Log}, audiences: newAudienceReader(cfg.Log)}
}

func dataPointDeleted(sourceID string) *fault.Error {
	return fault.New(fault.Conflict, fault.CodeDataPointDeleted, "the data point %q was deleted; its id takes no more sends", sourceID)
}

func idempotencyConflict(key string, id uuid.UUID) *fault.Error {
	return fault.New(fault.Conflict, fault.CodeIdempotencyConflict, "the idempotency key was used with another payload").
		With("idempotencyKey", key).With("ingestionId", id)
}
