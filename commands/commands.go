// Package commands is the write side: the commands of its folders as one service, over one journal. How they decide and
// append is in engine; what runs in the background is in pipeline, erasure, reads and audit.
package commands

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/commands/people"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/erasures"
)

// Config is what the write side needs, and the folders describe it. Journal, Waiter, Sends and HashKey are required for
// the commands of the API; commands of an operator use Journal, Waiter, PlanTerms and Accounts only.
type Config struct {
	Journal      *engine.Journal
	Waiter       engine.Waiter
	Sends        ingest.Sends
	FollowUps    identities.FollowUps
	DataPoints   ingest.DataPoints
	Limits       ingest.Limiter
	Events       ingest.Events
	HashKey      []byte
	Pipeline     bool
	Preparing    tenancy.Preparing
	Vault        tenancy.Vault
	Accounts     tenancy.Accounts
	Credentials  tenancy.CredentialsFile
	PlanTerms    metering.PlanTerms
	MemberLimits organization.Limits
	Directory    identities.Directory
	Records      identities.Records
	SoleWriter   bool
	LoadGauge    *engine.LoadGauge
}

type (
	// Sending is the commands on sends and data points.
	Sending = ingest.Service
	// Identities is the commands on identity records and audiences.
	Identities = identities.Service
	// People is the commands on persons and members.
	People = people.Service
	// Tenancy is the commands on organizations, projects, keys and webhooks.
	Tenancy = tenancy.Service
)

// Service is the commands of the API and of operators.
type Service struct {
	*Sending
	*Identities
	*People
	*Tenancy
	journal *engine.Journal
}

// New makes the write side.
func New(cfg Config) *Service {
	registry := &engine.RegistryReader{Journal: cfg.Journal}
	s := &Service{
		journal: cfg.Journal,
		Identities: identities.New(identities.Config{
			Journal: cfg.Journal, Waiter: cfg.Waiter, FollowUps: cfg.FollowUps, Directory: cfg.Directory,
			Records: cfg.Records, SoleWriter: cfg.SoleWriter,
		}),
		People: people.New(cfg.Journal, cfg.Waiter, registry, cfg.MemberLimits),
	}
	s.Sending = ingest.New(ingest.Config{
		Journal: cfg.Journal, Waiter: cfg.Waiter, Authors: s.Authors, Audiences: s.Audiences, Directory: cfg.Directory,
		Sends: cfg.Sends, DataPoints: cfg.DataPoints, Limits: cfg.Limits, Events: cfg.Events, HashKey: cfg.HashKey,
		Pipeline: cfg.Pipeline, LoadGauge: cfg.LoadGauge,
	})
	s.Tenancy = tenancy.New(tenancy.Config{
		Journal: cfg.Journal, Waiter: cfg.Waiter, Registry: registry, Audiences: s.Audiences, Preparing: cfg.Preparing,
		Vault: cfg.Vault, Accounts: cfg.Accounts, Credentials: cfg.Credentials, PlanTerms: cfg.PlanTerms,
	})
	return s
}

// PersonCommands are the commands that the erasure of a person (package erasure) calls in the project of the person.
type PersonCommands struct{ Service *Service }

// DeleteOf deletes data points, with the deletion that clients use. It returns the id of the deletion, zero if nothing
// was deleted because a client deleted one of them since.
func (c PersonCommands) DeleteOf(ctx context.Context, p erasures.Person, sourceIDs []string) (uuid.UUID, error) {
	call, err := c.call(ctx, p)
	if err != nil {
		return uuid.Nil, err
	}
	receipt, err := c.Service.DeleteDataPoints(ctx, call, sourceIDs)
	if receipt.OperationID != uuid.Nil { // even if it is not visible yet
		return receipt.OperationID, nil
	}
	if f, is := errors.AsType[*fault.Error](err); is && f.Code == fault.CodeDataPointNotFound {
		err = nil
	}
	return uuid.Nil, err
}

// RemoveRecord removes the identity record, if there is one.
func (c PersonCommands) RemoveRecord(ctx context.Context, p erasures.Person) error {
	call, err := c.call(ctx, p)
	if err != nil {
		return err
	}
	err = c.Service.DeleteIdentity(ctx, call, p.Identity)
	if f, is := errors.AsType[*fault.Error](err); is && f.Code == fault.CodeNotFound {
		err = nil
	}
	return err
}

// call is the call of who asked for the erasure.
func (c PersonCommands) call(ctx context.Context, p erasures.Person) (engine.Call, error) {
	namespace, ok, err := c.Service.journal.NamespaceOf(ctx, p.ProjectID)
	if err == nil && !ok {
		err = fmt.Errorf("the registry has no project %s", p.ProjectID)
	}
	return engine.Call{
		Principal: auth.Principal{
			Kind: auth.Kind(p.By), Project: auth.Project{ID: p.ProjectID, Namespace: namespace},
		},
		RequestID: p.ID, ReceivedAt: c.Service.journal.Now(),
	}, err
}
