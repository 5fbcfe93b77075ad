package commands

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
)

// The projections that answers wait for.
const (
	projectionAccess     = "access"
	projectionDataPoints = "datapoints"
)

// Sends finds the send that an id stands for, and never one of another project.
type Sends interface {
	// Targets are the data points of the items of a send that brought a revision, in order, also those that were deleted
	// since. An item that changed nothing is none. found is false only once the projection has passed the head of the log.
	Targets(ctx context.Context, project auth.Project, ingestionID uuid.UUID) (dataPoints []uuid.UUID, found bool, err error)
	// Deleted reports whether a send was deleted as a whole, by a deletion that was answered.
	Deleted(ctx context.Context, project auth.Project, ingestionID uuid.UUID) (bool, error)
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
	HashKey    []byte // key of the fingerprints, at least 32 bytes
	// Pipeline is false where background derivation is switched off: then nothing can be retried.
	Pipeline bool
	// Foreground counts the callers that wait for sends; nil counts nothing.
	Foreground *Foreground
}

// Service is the commands of the API.
type Service struct {
	Config
	authors  *authors
	registry *registryReader
}

// New makes the write side.
func New(cfg Config) *Service {
	if cfg.Foreground == nil {
		cfg.Foreground = &Foreground{}
	}
	return &Service{Config: cfg, authors: newAuthors(), registry: &registryReader{log: cfg.Log}}
}

// audience is the id of the audience that a slug names: zero for project-visible.
func (s *Service) audience(slug *string) (uuid.UUID, error) {
	if slug == nil || *slug == "project" {
		return uuid.Nil, nil
	}
	return uuid.Nil, fault.New(fault.Invalid, fault.CodeAudienceUnknown, "the project has no audience %q", *slug).With("audience", *slug)
}

func dataPointDeleted(sourceID string) *fault.Error {
	return fault.New(fault.Conflict, fault.CodeDataPointDeleted, "the data point %q was deleted; its id takes no more sends", sourceID)
}

func idempotencyConflict(key string, id uuid.UUID) *fault.Error {
	return fault.New(fault.Conflict, fault.CodeIdempotencyConflict, "the idempotency key was used with another payload").
		With("idempotencyKey", key).With("ingestionId", id)
}
