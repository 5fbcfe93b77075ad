package commands

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
)

// Sends reads the sends of a project, and never one of another project where it takes one.
type Sends interface {
	// Targets returns the data points of the items of a send that created a revision, in order,
	// deleted ones too. found is false only once the projection has passed the head of the log.
	Targets(
		ctx context.Context, project auth.Project, ingestionID uuid.UUID,
	) (dataPoints []uuid.UUID, found bool, err error)
	// ProjectOf returns the project of a send, also of a project that is not the caller's.
	ProjectOf(ctx context.Context, ingestionID uuid.UUID) (project uuid.UUID, found bool, err error)
	// Pending returns those of the data points that a committed batch of the project creates whose
	// fan-out is not complete. It returns once the projection has passed the head of the log.
	Pending(ctx context.Context, project auth.Project, dataPoints []uuid.UUID) (map[uuid.UUID]bool, error)
	// NewestSends returns the live ones of the data points, each with the send of its newest revision.
	NewestSends(ctx context.Context, project auth.Project, dataPoints []uuid.UUID) (map[uuid.UUID]uuid.UUID, error)
	// Completed reports whether polls show the send as completed: a watermark found it searchable, or
	// a deletion of the whole send was answered.
	Completed(ctx context.Context, project auth.Project, ingestionID uuid.UUID) (bool, error)
}

// DataPoints reads which data points were ever sent.
type DataPoints interface {
	// Sent returns those of the data points of which the projection has applied a send, deleted ones
	// too. It contains all whose deletion was answered, since that answer waits for the projection.
	// For the rest it is a hint, which may be late.
	Sent(ctx context.Context, dataPoints []uuid.UUID) (map[uuid.UUID]struct{}, error)
}

// Config is what the write side needs. Journal, Waiter, Sends and HashKey are required for the
// commands of the API; commands of an operator use Journal, Waiter, PlanTerms and Accounts only.
type Config struct {
	Journal *Journal
	Waiter  Waiter
	Sends   Sends
	// FollowUps makes the put of a rule answer once its members are counted. Without it, that is not waited for.
	FollowUps FollowUps
	// DataPoints saves a batch the reads of new data points. Without it, each is read.
	DataPoints DataPoints
	// Limits reserve what sends cost. Without it, sends have no caps.
	Limits Limiter
	// Events counts the events that webhooks receive, and charges their price. Without it, they are free.
	Events  Events
	HashKey []byte // key of the fingerprints, at least 32 bytes
	// Pipeline is false if background derivation is switched off: then nothing can be retried.
	Pipeline bool
	// Preparing saves a start the reads of prepared organizations. Without it, each is read.
	Preparing Preparing
	// Vault stores the clear values of project keys, sealed. Without it, they are not stored.
	Vault Vault
	// Accounts read what organizations were charged and have left.
	Accounts Accounts
	// Credentials is the file that receives new management keys, nil for none.
	Credentials CredentialsFile
	// PlanTerms are the terms of the plans, metering.DefaultPlanTerms if it is nil.
	PlanTerms metering.PlanTerms
	// MemberLimits bound members and offers; organization.DefaultLimits for the zero value.
	MemberLimits organization.Limits
	// Directory reads the identity records that a write changes.
	Directory Directory
	// Records saves the put of an audience the reads of its members. Without it, each is read.
	Records Records
	// SoleWriter is true if no other process writes the log. Then what this process has read stays
	// valid until it writes itself.
	SoleWriter bool
	// LoadGauge measures how many callers wait for sends.
	LoadGauge *LoadGauge
}

// Service is the commands of the API and of operators.
type Service struct {
	journal      *Journal
	waiter       Waiter
	followUps    FollowUps
	sends        Sends
	dataPoints   DataPoints
	limits       Limiter
	hashKey      []byte
	pipeline     bool
	preparing    Preparing
	vault        Vault
	accounts     Accounts
	credentials  CredentialsFile
	planTerms    metering.PlanTerms
	memberLimits organization.Limits
	directory    Directory
	records      Records
	load         *LoadGauge
	events       Events
	authors      *authors
	registry     *registryReader
	audiences    *audienceReader
}

// New makes the write side.
func New(cfg Config) *Service {
	s := &Service{
		journal: cfg.Journal, waiter: cfg.Waiter, followUps: cfg.FollowUps, sends: cfg.Sends,
		dataPoints: cfg.DataPoints, limits: cfg.Limits,
		hashKey: cfg.HashKey, pipeline: cfg.Pipeline, preparing: cfg.Preparing, vault: cfg.Vault, accounts: cfg.Accounts,
		credentials: cfg.Credentials,
		planTerms:   cfg.PlanTerms, memberLimits: cmp.Or(cfg.MemberLimits, organization.DefaultLimits()),
		directory: cfg.Directory, records: cfg.Records, load: cfg.LoadGauge, events: cfg.Events,
		authors: newAuthors(cfg.SoleWriter), registry: &registryReader{journal: cfg.Journal},
		audiences: newAudienceReader(cfg.Journal),
	}
	if s.limits == nil {
		s.limits = unlimited{}
	}
	if s.vault == nil {
		s.vault = noVault{}
	}
	if s.planTerms == nil {
		s.planTerms = metering.DefaultPlanTerms()
	}
	if s.events == nil {
		s.events = uncounted{}
	}
	if s.load == nil {
		s.load = &LoadGauge{}
	}
	return s
}

// unlimited is a Limiter without caps.
type unlimited struct{}

func (unlimited) Reserve(context.Context, metering.Reservation, time.Duration) error { return nil }
func (unlimited) Release(context.Context, uuid.UUID, uuid.UUID) error                { return nil }

// uncounted are Events that cost nothing.
type uncounted struct{}

func (uncounted) ChargeEvent(_ context.Context, _ auth.Principal, _ time.Time, work func() error) error {
	return work()
}

// noVault is a Vault that stores nothing.
type noVault struct{}

func (noVault) Keep(context.Context, uuid.UUID, string) error { return nil }

func (noVault) Reveal(context.Context, uuid.UUID) (string, bool, error) { return "", false, nil }

func (noVault) Drop(context.Context, ...uuid.UUID) error { return nil }

func dataPointDeleted(sourceID string) *fault.Error {
	return fault.New(fault.Conflict, fault.CodeDataPointDeleted,
		"the data point %q is deleted; its id cannot be reused", sourceID)
}

func idempotencyConflict(key string, id uuid.UUID) *fault.Error {
	return fault.New(fault.Conflict, fault.CodeIdempotencyConflict, "the idempotency key was used with another payload").
		With("idempotencyKey", key).With("ingestionId", id)
}
