// Package identities writes the directory of a project: identity records with their traits, one by one or many at
// once, and audiences, which name records as members.
package identities

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/work"
)

// Config is what the commands of this package need. FollowUps and Records may be nil.
type Config struct {
	Journal *engine.Journal
	Waiter  engine.Waiter
	// FollowUps makes the put of a rule answer once its members are counted. Without it, that is not waited for.
	FollowUps FollowUps
	// Directory reads the identity records that a write changes.
	Directory Directory
	// Records saves the put of an audience the reads of its members. Without it, each is read.
	Records Records
	// SoleWriter is true if no other process writes the log. Then what this process has read stays
	// valid until it writes itself.
	SoleWriter bool
}

// Service is the commands on identity records and audiences. Sends and webhooks name authors and audiences too.
type Service struct {
	Authors   *Authors
	Audiences *AudienceReader

	journal   *engine.Journal
	waiter    engine.Waiter
	followUps FollowUps
	directory Directory
	records   Records
}

// New makes a Service.
func New(cfg Config) *Service {
	return &Service{
		Authors: newAuthors(cfg.Journal, cfg.Records, cfg.SoleWriter), Audiences: newAudienceReader(cfg.Journal),
		journal: cfg.Journal, waiter: cfg.Waiter, followUps: cfg.FollowUps, directory: cfg.Directory, records: cfg.Records,
	}
}

// FollowUps waits for work that follows an event in slices.
type FollowUps interface {
	// WaitFollowUp waits until a projection has no follow-up of a kind and a key, queued up to a
	// position that it has applied.
	WaitFollowUp(ctx context.Context, projection, kind string, key uuid.UUID) error
}

// Directory reads the identity directory for writes. It reads the primary, and fails with
// service-unavailable while the projection is stopped.
type Directory interface {
	// RecordHeads returns up to where it has applied the streams of known records, removed ones too,
	// and their current records.
	RecordHeads(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]work.RecordHead, error)
	// OpenBulks returns the committed bulk writes without a complete fan-out that contain a row of any
	// of the records.
	OpenBulks(ctx context.Context, project auth.Project, ids []uuid.UUID) ([]uuid.UUID, error)
}

// Records reads which identities have a record, up to what the projection has applied. Identities
// whose removal was answered are not among them, since that answer waits for the projection.
type Records interface {
	Known(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]struct{}, error)
}
