package commands

import (
	"cmp"
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/secret"
)

// Vault stores the clear values of project keys, sealed, so that they can be revealed.
type Vault interface {
	Keep(ctx context.Context, keyID uuid.UUID, clear string) error
	Drop(ctx context.Context, keyIDs ...uuid.UUID) error
	// Reveal returns the clear value of a key; ok is false if none is stored. secret.ErrSealKeyUnknown means that no
	// seal key opens it.
	Reveal(ctx context.Context, keyID uuid.UUID) (clear string, ok bool, err error)
}

// CreateProject creates a project of the caller's organization. Its slug derives from the name and
// never changes. Its faults are project-name-invalid and project-limit-reached, with the plan's
// limit and the number of projects, archived ones too.
func (s *Service) CreateProject(ctx context.Context, call Call, name string) (ProjectReceipt, error) {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	if !project.ValidName(name) {
		return ProjectReceipt{}, fault.New(fault.Invalid, fault.CodeProjectNameInvalid,
			"name must have up to 255 characters, at least two of them letters or digits")
	}
	organization := call.Principal.OrganizationID
	var receipt ProjectReceipt
	done, err := runDecision(decideCtx, s.journal, decision[registry.State]{
		stream: stream.Registry, read: s.registry.readHead, meta: call.newMeta,
		decide: func(ctx context.Context, state registry.State) ([]event.Event, error) {
			plan, err := s.roomForProject(ctx, organization, state)
			if err != nil {
				return nil, err
			}
			created := registry.ProjectCreated{
				OrganizationID: organization, ProjectID: uuid.New(), Number: state.NextNumber(), Name: name,
				Namespace: uuid.New(), CreatedAt: call.ReceivedAt,
				Slug: project.FreeSlug(
					name, func(slug string) bool { _, taken := state.Project(organization, slug); return taken },
				),
			}
			receipt = ProjectReceipt{
				ID: created.ProjectID, Slug: created.Slug, Name: name, CreatedAt: created.CreatedAt, Metered: plan.Metered(),
			}
			return []event.Event{created}, nil
		},
	})
	if err != nil {
		return ProjectReceipt{}, err
	}
	// The first send of the project must count for its organization, so usage must know the project.
	return receipt, waitVisible(ctx, s.waiter, done.Position, projection.Access, projection.Usage)
}

// roomForProject returns the plan of an organization that may have one more project, or the fault
// project-limit-reached.
func (s *Service) roomForProject(
	ctx context.Context, organization uuid.UUID, state registry.State,
) (metering.Plan, error) {
	current, err := readOrganization(ctx, s.journal, organization)
	if err != nil {
		return "", err
	}
	limit, projects := s.planTerms[current.Plan].Projects, state.Projects(organization)
	if limit > 0 && projects >= limit {
		return "", fault.New(fault.PaymentRequired, fault.CodeProjectLimitReached,
			"the plan has %d projects, archived ones too, and the organization has %d", limit, projects).
			With("limit", limit).With("projects", projects)
	}
	return current.Plan, nil
}

// DescribeProject changes the name and the description of a project. The slug stays. Its faults are
// project-name-invalid, invalid-request and not-found.
func (s *Service) DescribeProject(ctx context.Context, call Call, slug, name, description string) error {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	if fields.CheckName(name, 1, limit.ProjectName) != nil {
		return fault.New(fault.Invalid, fault.CodeProjectNameInvalid, "a project needs a name of 1 to %d characters",
			limit.ProjectName)
	}
	if fields.CheckName(description, 0, limit.ProjectText) != nil {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, "a description has up to %d characters",
			limit.ProjectText)
	}
	p, err := s.project(decideCtx, call, slug)
	if err != nil {
		return err
	}
	done, err := s.decideProject(decideCtx, call, p.ProjectID, func(state project.State) ([]event.Event, error) {
		if cmp.Or(state.Name, p.Name) == name && state.Description == description {
			return nil, nil
		}
		return []event.Event{project.Described{
			ProjectID: p.ProjectID, Name: name, Description: description, DescribedAt: call.ReceivedAt,
		}}, nil
	})
	if err != nil {
		return err
	}
	return waitVisible(ctx, s.waiter, done, projection.Access)
}

// CreateKey creates a key of a project and returns its clear value, which is stored only in the
// vault, sealed. Its fault is not-found.
func (s *Service) CreateKey(ctx context.Context, call Call, slug, name string) (KeyReceipt, error) {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	p, err := s.project(decideCtx, call, slug)
	if err != nil {
		return KeyReceipt{}, err
	}
	generated, err := secret.NewProjectKey()
	if err != nil {
		return KeyReceipt{}, err
	}
	created := project.KeyCreated{
		ProjectID: p.ProjectID, KeyID: uuid.New(), Name: name, Hash: generated.Hash,
		Prefix: generated.Prefix, Suffix: generated.Suffix, CreatedAt: call.ReceivedAt,
	}
	// Seal the value before the key exists, so that no crash leaves a key that cannot be revealed. A
	// later start drops a value without a key.
	if err := s.vault.Keep(decideCtx, created.KeyID, generated.Clear); err != nil {
		s.journal.Logger.ErrorContext(ctx, "seal of a new key failed, the key is refused", "err", err)
		return KeyReceipt{}, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the key could not be stored; retry")
	}
	done, err := s.decideProject(decideCtx, call, p.ProjectID, func(project.State) ([]event.Event, error) {
		return []event.Event{created}, nil
	})
	if err != nil {
		return KeyReceipt{}, err
	}
	receipt := KeyReceipt{
		ID: created.KeyID.String(), Name: name, KeyPrefix: created.Prefix, KeySuffix: created.Suffix,
		CreatedAt: created.CreatedAt, Key: generated.Clear,
	}
	return receipt, waitVisible(ctx, s.waiter, done, projection.Access)
}

// RevealKey returns the clear value of a live key. It first appends an event that names who is shown it. The fault is
// not-found, also for a revoked key and for a value that cannot be opened.
func (s *Service) RevealKey(ctx context.Context, call Call, slug, keyID string) (clear string, err error) {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	p, err := s.project(ctx, call, slug)
	if err != nil {
		return "", err
	}
	id, err := uuid.Parse(keyID)
	if err != nil || id.String() != keyID {
		return "", noLiveKey(keyID)
	}
	clear, stored, err := s.vault.Reveal(ctx, id)
	switch {
	case errors.Is(err, secret.ErrSealKeyUnknown):
		return "", fault.New(fault.NotFound, fault.CodeNotFound,
			"key %s is sealed with a key that is not in ANNALS_SEAL_KEY: it works, but cannot be revealed", keyID)
	case err != nil:
		return "", err
	}
	_, err = s.decideProject(ctx, call, p.ProjectID, func(state project.State) ([]event.Event, error) {
		if !state.LiveKeys[id] {
			return nil, noLiveKey(keyID)
		}
		if !stored {
			return nil, fault.New(fault.NotFound, fault.CodeNotFound,
				"the value of key %s is not stored, as after a restore: it works, but cannot be revealed", keyID)
		}
		return []event.Event{project.KeyRevealed{ProjectID: p.ProjectID, KeyID: id, RevealedAt: call.ReceivedAt}}, nil
	})
	if err != nil {
		return "", err
	}
	return clear, nil
}

func noLiveKey(keyID string) error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "the project has no live key %q", keyID)
}

// RevokeKey revokes a key: it is refused from its next call and can no longer be revealed. The
// fault is not-found, also for a revoked key.
func (s *Service) RevokeKey(ctx context.Context, call Call, slug, keyID string) error {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	p, err := s.project(decideCtx, call, slug)
	if err != nil {
		return err
	}
	id, err := uuid.Parse(keyID)
	if err != nil || id.String() != keyID {
		return noLiveKey(keyID)
	}
	done, err := s.decideProject(decideCtx, call, p.ProjectID, func(state project.State) ([]event.Event, error) {
		if !state.LiveKeys[id] {
			return nil, noLiveKey(keyID)
		}
		return []event.Event{project.KeyRevoked{ProjectID: p.ProjectID, KeyID: id, RevokedAt: call.ReceivedAt}}, nil
	})
	if err != nil {
		return s.refuseRemovalFrom(decideCtx, err, stream.Name(stream.Project, p.ProjectID), projection.Access)
	}
	if err := s.vault.Drop(decideCtx, id); err != nil {
		s.journal.Logger.WarnContext(ctx, "sealed value of revoked key not dropped, next start drops it", "key", id,
			"err", err)
	}
	return waitVisible(ctx, s.waiter, done, projection.Access)
}

// project returns the project of the caller's organization that a slug names.
func (s *Service) project(ctx context.Context, call Call, slug string) (registry.ProjectCreated, error) {
	p, ok, err := s.registry.projectBySlug(ctx, call.Principal.OrganizationID, slug)
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "the organization has no project %q", slug)
	}
	return p, err
}

// decideProject decides on a project. The position is that of its last event.
func (s *Service) decideProject(
	ctx context.Context, call Call, id uuid.UUID, decide func(project.State) ([]event.Event, error),
) (eventstore.Position, error) {
	name := stream.Name(stream.Project, id)
	done, err := runDecision(ctx, s.journal, decision[project.State]{
		stream: name, read: folded[project.State](s.journal, name), meta: call.newMeta,
		decide: func(_ context.Context, state project.State) ([]event.Event, error) { return decide(state) },
	})
	return done.Position, err
}
