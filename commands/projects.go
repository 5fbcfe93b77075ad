package commands

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/secret"
)

// Vault keeps the clear values of project keys, sealed, so that the console can show them again.
type Vault interface {
	Keep(ctx context.Context, keyID uuid.UUID, clear string) error
	Drop(ctx context.Context, keyIDs ...uuid.UUID) error
}

// CreateProject creates a project of the caller's organization; its slug derives from the name and never changes.
// Its faults are project-name-invalid and project-limit-reached, with the plan's limit and the number of projects, archived ones too.
func (s *Service) CreateProject(ctx context.Context, call Call, name string) (ProjectReceipt, error) {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	if !project.ValidName(name) {
		return ProjectReceipt{}, fault.New(fault.Invalid, fault.CodeProjectNameInvalid,
			"name must have up to 255 characters, at least two of them letters or digits")
	}
	release, err := s.Log.Serialize(decideCtx, stream.Registry)
	if err != nil {
		return ProjectReceipt{}, unavailable(err)
	}
	defer release()
	for {
		state, err := s.registry.read(decideCtx)
		if err != nil {
			return ProjectReceipt{}, err
		}
		organization := call.Principal.OrganizationID
		plan, err := s.roomForProject(decideCtx, organization, state)
		if err != nil {
			return ProjectReceipt{}, err
		}
		created := registry.ProjectCreated{
			OrganizationID: organization, ProjectID: uuid.New(), Number: state.NextNumber(), Name: name, Namespace: stream.NewNamespace(), CreatedAt: call.ReceivedAt,
			Slug: project.FreeSlug(name, func(slug string) bool { _, taken := state.Project(organization, slug); return taken }),
		}
		done, err := s.Log.Append(decideCtx, stream.Registry, eventstore.Revision(state.Events-1), call.meta(uuid.New()), created)
		if errors.Is(err, eventstore.ErrConflict) {
			continue
		}
		if err != nil {
			return ProjectReceipt{}, err
		}
		receipt := ProjectReceipt{ID: created.ProjectID, Slug: created.Slug, Name: name, CreatedAt: created.CreatedAt, Metered: plan.Metered()}
		// What the project takes counts for its organization from its first send on.
		return receipt, visible(ctx, s.Waiter, done.Position, projectionAccess, projectionUsage)
	}
}

// roomForProject is the plan of an organization that may have one more project.
func (s *Service) roomForProject(ctx context.Context, organization uuid.UUID, state registry.State) (metering.Plan, error) {
	standing, _, err := readOrganization(ctx, s.Log, organization)
	if err != nil {
		return "", err
	}
	limit, projects := s.Tariff[standing.Plan].Projects, state.Projects(organization)
	if limit > 0 && projects >= limit {
		return "", fault.New(fault.PaymentRequired, fault.CodeProjectLimitReached, "the plan has %d projects, archived ones too, and the organization has %d", limit, projects).
			With("limit", limit).With("projects", projects)
	}
	return standing.Plan, nil
}

// CreateKey creates a key of a project and answers its clear value, which is stored nowhere but in the vault, sealed.
// Its fault is not-found.
func (s *Service) CreateKey(ctx context.Context, call Call, slug, name string) (KeyReceipt, error) {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	p, err := s.project(decideCtx, call, slug)
	if err != nil {
		return KeyReceipt{}, err
	}
	drawn, err := secret.NewProjectKey()
	if err != nil {
		return KeyReceipt{}, err
	}
	created := project.KeyCreated{
		ProjectID: p.ProjectID, KeyID: uuid.New(), Name: name, Hash: drawn.Hash, Prefix: drawn.Prefix, Suffix: drawn.Suffix, CreatedAt: call.ReceivedAt,
	}
	if s.Vault != nil {
		// Before the key, so that no crash leaves one that cannot be shown; a value without a key is dropped at a later start.
		if err := s.Vault.Keep(decideCtx, created.KeyID, drawn.Clear); err != nil {
			s.Log.Logger.ErrorContext(ctx, "key not sealed", "err", err)
			return KeyReceipt{}, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the key could not be stored; retry")
		}
	}
	done, err := s.appendToProject(decideCtx, call, p.ProjectID, func(project.State) ([]event.Event, error) { return []event.Event{created}, nil })
	if err != nil {
		return KeyReceipt{}, err
	}
	receipt := KeyReceipt{
		ID: created.KeyID.String(), Name: name, KeyPrefix: created.Prefix, KeySuffix: created.Suffix, CreatedAt: created.CreatedAt, Key: drawn.Clear,
	}
	return receipt, visible(ctx, s.Waiter, done, projectionAccess)
}

// RevokeKey ends a key; it is refused from its next call, and shown no more. Its fault is not-found, also for a key that is revoked already.
func (s *Service) RevokeKey(ctx context.Context, call Call, slug, keyID string) error {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	p, err := s.project(decideCtx, call, slug)
	if err != nil {
		return err
	}
	unknown := fault.New(fault.NotFound, fault.CodeNotFound, "the project has no live key %q", keyID)
	id, err := uuid.Parse(keyID)
	if err != nil || id.String() != keyID {
		return unknown
	}
	done, err := s.appendToProject(decideCtx, call, p.ProjectID, func(state project.State) ([]event.Event, error) {
		if !state.LiveKeys[id] {
			return nil, unknown
		}
		return []event.Event{project.KeyRevoked{ProjectID: p.ProjectID, KeyID: id, RevokedAt: call.ReceivedAt}}, nil
	})
	if err != nil {
		return err
	}
	if s.Vault != nil {
		if err := s.Vault.Drop(decideCtx, id); err != nil {
			s.Log.Logger.WarnContext(ctx, "revoked key is still kept sealed, until a later start", "key", id, "err", err)
		}
	}
	return visible(ctx, s.Waiter, done, projectionAccess)
}

// project is the project of the caller's organization that a slug names.
func (s *Service) project(ctx context.Context, call Call, slug string) (registry.ProjectCreated, error) {
	p, ok, err := s.registry.projectBySlug(ctx, call.Principal.OrganizationID, slug)
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "the organization has no project %q", slug)
	}
	return p, err
}

// appendToProject decides on a project's stream and appends at the revision that it decided on. The position is that of the change
// or, where nothing is to be changed, that of the last event.
func (s *Service) appendToProject(ctx context.Context, call Call, id uuid.UUID, decide func(project.State) ([]event.Event, error)) (eventstore.Position, error) {
	name := stream.Name(stream.Project, id)
	release, err := s.Log.Serialize(ctx, name)
	if err != nil {
		return 0, unavailable(err)
	}
	defer release()
	for {
		facts, err := s.Log.ReadFrom(ctx, name, 0)
		if err != nil {
			return 0, err
		}
		state := project.State{LiveKeys: make(map[uuid.UUID]bool)}
		var at eventstore.Position
		for _, f := range facts {
			state.Evolve(f.Event)
			at = f.Position
		}
		changes, err := decide(state)
		if err != nil || len(changes) == 0 {
			return at, err
		}
		done, err := s.Log.Append(ctx, name, eventstore.Revision(len(facts)-1), call.meta(uuid.New()), changes...)
		if errors.Is(err, eventstore.ErrConflict) {
			continue
		}
		return done.Position, err
	}
}
