// Package tenancy changes organizations and what belongs to them: plans, credits and caps, projects, keys and webhooks.
// It opens a log at the first start, appends what was counted for the bill, and sets events aside for operators.
package tenancy

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/domain/metering"
)

// Config is what the commands of this package need. Journal, Waiter, Registry and Audiences are required.
type Config struct {
	Journal   *engine.Journal
	Waiter    engine.Waiter
	Registry  *engine.RegistryReader
	Audiences *identities.AudienceReader
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
}

// Service is the commands on organizations, projects, keys and webhooks.
type Service struct {
	journal     *engine.Journal
	waiter      engine.Waiter
	registry    *engine.RegistryReader
	audiences   *identities.AudienceReader
	preparing   Preparing
	vault       Vault
	accounts    Accounts
	credentials CredentialsFile
	planTerms   metering.PlanTerms
}

// New makes a Service.
func New(cfg Config) *Service {
	s := &Service{
		journal: cfg.Journal, waiter: cfg.Waiter, registry: cfg.Registry, audiences: cfg.Audiences,
		preparing: cfg.Preparing, vault: cfg.Vault, accounts: cfg.Accounts, credentials: cfg.Credentials,
		planTerms: cfg.PlanTerms,
	}
	if s.vault == nil {
		s.vault = noVault{}
	}
	if s.planTerms == nil {
		s.planTerms = metering.DefaultPlanTerms()
	}
	return s
}

// Preparing reads the organizations that are not prepared, up to what the projection has applied. A
// prepared organization stays prepared.
type Preparing interface {
	Preparing(ctx context.Context) ([]uuid.UUID, error)
}

// Vault stores the clear values of project keys, sealed, so that they can be revealed.
type Vault interface {
	Keep(ctx context.Context, keyID uuid.UUID, clear string) error
	Drop(ctx context.Context, keyIDs ...uuid.UUID) error
	// Reveal returns the clear value of a key; ok is false if none is stored. secret.ErrSealKeyUnknown means that no
	// seal key opens it.
	Reveal(ctx context.Context, keyID uuid.UUID) (clear string, ok bool, err error)
}

// Accounts read what organizations were charged and have left, up to what the projections have
// applied.
type Accounts interface {
	// Charged returns what all projects were charged in a month ("2006-01"), in tenths of a credit,
	// metered or not.
	Charged(ctx context.Context, organization uuid.UUID, month string) (tenths int64, err error)
	// Balance returns the balance in the UTC month of an instant.
	Balance(ctx context.Context, organization uuid.UUID, at time.Time) (metering.Balance, error)
}

// CredentialsFile is the file of keys that the first start writes.
type CredentialsFile interface {
	Path() string
	// ReplaceManagementKey writes a key if the file holds a management key whose hash (in hexadecimal) is that of a
	// former key. It reports whether it did.
	ReplaceManagementKey(isFormer func(hash string) bool, clear string) (replaced bool, err error)
}

// noVault is a Vault that stores nothing.
type noVault struct{}

func (noVault) Keep(context.Context, uuid.UUID, string) error { return nil }

func (noVault) Reveal(context.Context, uuid.UUID) (string, bool, error) { return "", false, nil }

func (noVault) Drop(context.Context, ...uuid.UUID) error { return nil }
