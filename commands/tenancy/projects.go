package tenancy

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
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
	"github.com/annals-project/annals/internal/tenants"
)

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

// CreateProject creates a project of the caller's organization. Its slug derives from the name and
// never changes. Its faults are project-name-invalid and project-limit-reached, with the plan's
// limit and the number of projects, archived ones too.
func (s *Service) CreateProject(ctx context.Context, call engine.Call, name string) (ProjectReceipt, error) {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	if !project.ValidName(name) {
		return ProjectReceipt{}, fault.New(fault.Invalid, fault.CodeProjectNameInvalid,
			"name must have up to 255 characters, at least two of them letters or digits")
	}
	organization := call.Principal.OrganizationID
	var receipt ProjectReceipt
	done, err := engine.Decide(decideCtx, s.journal, engine.Decision[registry.State]{
		Stream: stream.Registry, Read: s.registry.ReadHead, Meta: call.NewMeta,
		Decide: func(ctx context.Context, state registry.State) ([]event.Event, error) {
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
	return receipt, engine.WaitVisible(ctx, s.waiter, done.Position, projection.Access, projection.Usage)
}

// roomForProject returns the plan of an organization that may have one more project, or the fault
// project-limit-reached.
func (s *Service) roomForProject(
	ctx context.Context, organization uuid.UUID, state registry.State,
) (metering.Plan, error) {
	current, err := engine.ReadOrganization(ctx, s.journal, organization)
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
func (s *Service) DescribeProject(ctx context.Context, call engine.Call, slug, name, description string) error {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
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
	return engine.WaitVisible(ctx, s.waiter, done, projection.Access)
}

// CreateKey creates a key of a project and returns its clear value, which is stored only in the
// vault, sealed. Its fault is not-found.
func (s *Service) CreateKey(ctx context.Context, call engine.Call, slug, name string) (KeyReceipt, error) {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
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
	return receipt, engine.WaitVisible(ctx, s.waiter, done, projection.Access)
}

// RevealKey returns the clear value of a live key. It first appends an event that names who is shown it. The fault is
// not-found, also for a revoked key and for a value that cannot be opened.
func (s *Service) RevealKey(ctx context.Context, call engine.Call, slug, keyID string) (clear string, err error) {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
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
func (s *Service) RevokeKey(ctx context.Context, call engine.Call, slug, keyID string) error {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
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
		name := stream.Name(stream.Project, p.ProjectID)
		return engine.RefuseRemovalFrom(decideCtx, s.journal, s.waiter, err, name, projection.Access)
	}
	if err := s.vault.Drop(decideCtx, id); err != nil {
		s.journal.Logger.WarnContext(ctx, "sealed value of revoked key not dropped, next start drops it", "key", id,
			"err", err)
	}
	return engine.WaitVisible(ctx, s.waiter, done, projection.Access)
}

// project returns the project of the caller's organization that a slug names.
func (s *Service) project(ctx context.Context, call engine.Call, slug string) (registry.ProjectCreated, error) {
	p, ok, err := s.registry.ProjectBySlug(ctx, call.Principal.OrganizationID, slug)
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "the organization has no project %q", slug)
	}
	return p, err
}

// decideProject decides on a project. The position is that of its last event.
func (s *Service) decideProject(
	ctx context.Context, call engine.Call, id uuid.UUID, decide func(project.State) ([]event.Event, error),
) (eventstore.Position, error) {
	name := stream.Name(stream.Project, id)
	done, err := engine.Decide(ctx, s.journal, engine.Decision[project.State]{
		Stream: name, Read: engine.Folded[project.State](s.journal, name), Meta: call.NewMeta,
		Decide: func(_ context.Context, state project.State) ([]event.Event, error) { return decide(state) },
	})
	return done.Position, err
}

// SetArchived archives a project, so that every call of its keys is refused, or unarchives it, from
// the next call on. A project that is so already is not a fault. The organization is named by name
// or id, "" is the only one. Its faults are not-found and invalid-request.
func (s *Service) SetArchived(
	ctx context.Context, call engine.Call, org, slug string, archived bool,
) (tenants.Project, error) {
	return s.changeProject(ctx, call, org, slug, func(id uuid.UUID, state project.State) ([]event.Event, error) {
		switch {
		case state.Archived == archived:
			return nil, nil
		case archived:
			return []event.Event{&project.Archived{ProjectID: id, ArchivedAt: call.ReceivedAt}}, nil
		default:
			return []event.Event{&project.Unarchived{ProjectID: id, UnarchivedAt: call.ReceivedAt}}, nil
		}
	})
}

// Caps is a change of a project's monthly caps. Of those that are set to change, nil removes the
// cap.
type Caps struct {
	SetIngestion bool   `json:"setIngestion"`
	Ingestion    *int64 `json:"ingestion"` // data points
	SetCredit    bool   `json:"setCredit"`
	CreditTenths *int64 `json:"creditTenths"`
}

// SetCaps changes the caps of a project that are set to change, from the next call on. If none is,
// it returns the current ones. Its faults are not-found, and invalid-request for a cap below 0.
func (s *Service) SetCaps(ctx context.Context, call engine.Call, org, slug string, c Caps) (tenants.Project, error) {
	if c.SetIngestion && c.Ingestion != nil && (*c.Ingestion < 0 || *c.Ingestion > maxGrant) {
		return tenants.Project{}, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"an ingestion cap is 0 to %d data points, or none", int64(maxGrant))
	}
	if c.SetCredit && c.CreditTenths != nil && (*c.CreditTenths < 0 || *c.CreditTenths > maxGrant) {
		return tenants.Project{}, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"a credit cap is 0 to %s credits, or none", metering.Credits(maxGrant))
	}
	return s.changeProject(ctx, call, org, slug, func(id uuid.UUID, state project.State) ([]event.Event, error) {
		set := &project.CapsSet{
			ProjectID:       id,
			IngestionCap:    state.IngestionCap,
			CreditCapTenths: state.CreditCapTenths,
			SetAt:           call.ReceivedAt,
		}
		if c.SetIngestion {
			set.IngestionCap = c.Ingestion
		}
		if c.SetCredit {
			set.CreditCapTenths = c.CreditTenths
		}
		if same(set.IngestionCap, state.IngestionCap) && same(set.CreditCapTenths, state.CreditCapTenths) {
			return nil, nil
		}
		return []event.Event{set}, nil
	})
}

// changeProject decides on the stream of a project. It returns once its keys are looked up with the
// change.
func (s *Service) changeProject(
	ctx context.Context, call engine.Call, org, slug string, decide func(uuid.UUID, project.State) ([]event.Event, error),
) (tenants.Project, error) {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	o, err := s.organization(decideCtx, org)
	if err != nil {
		return tenants.Project{}, err
	}
	p, ok, err := s.registry.ProjectBySlug(decideCtx, o.OrganizationID, slug)
	if err != nil {
		return tenants.Project{}, err
	}
	if !ok {
		return tenants.Project{}, fault.New(fault.NotFound, fault.CodeNotFound,
			"organization %q has no project %q", o.Name, slug)
	}
	out := tenants.Project{ID: p.ProjectID, Organization: o.Name, Slug: p.Slug, Name: p.Name}
	var at eventstore.Position
	at, err = s.decideProject(decideCtx, call, p.ProjectID, func(state project.State) ([]event.Event, error) {
		changes, err := decide(p.ProjectID, state)
		for _, e := range changes {
			state.Evolve(e)
		}
		out.IsArchived, out.Name = state.Archived, cmp.Or(state.Name, p.Name)
		out.IngestionCap, out.CreditCap = state.IngestionCap, tenants.Cap(state.CreditCapTenths)
		return changes, err
	})
	if err != nil {
		return tenants.Project{}, err
	}
	// A new cap counts sends that were accepted before it without a reservation, so wait until they
	// are projected.
	return out, engine.WaitVisible(ctx, s.waiter, at, projection.Access, projection.DataPoints)
}

// SetReads sets whether the reads of the project of the call are recorded, from the next call on, and for how many
// days. The fault is invalid-request.
func (s *Service) SetReads(ctx context.Context, call engine.Call, reads project.Reads) error {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	id := call.Principal.Project.ID
	at, err := s.decideProject(ctx, call, id, func(state project.State) ([]event.Event, error) {
		return state.SetReads(id, reads, call.ReceivedAt)
	})
	if err != nil {
		return err
	}
	return engine.WaitVisible(ctx, s.waiter, at, projection.Access)
}

// Tenants finds organizations, projects and keys of any organization, with everything that was answered before. An
// organization is named by name or id, "" is the only one, or any for a project; a project by slug, a key by id. The
// faults are not-found, conflict and service-unavailable.
type Tenants interface {
	Organization(ctx context.Context, organization string) (tenants.ListedOrganization, error)
	Project(ctx context.Context, organization, slug string) (tenants.ListedProject, error)
	Key(ctx context.Context, organization, slug, id string) (tenants.ListedProject, tenants.Key, error)
}

// Operator performs commands on projects and keys of the organization that a person names, for operators: what the
// commands of Service do for the organization of a key. What is committed but not visible yet has a warning.
type Operator struct {
	Service *Service
	Tenants Tenants
}

// CreateProject creates a project of an organization.
func (t Operator) CreateProject(
	ctx context.Context, call engine.Call, organization, name string,
) (out tenants.ListedProject, err error) {
	o, err := t.Tenants.Organization(ctx, organization)
	if err != nil {
		return out, err
	}
	made, err := t.Service.CreateProject(ctx, callIn(o.ID, call), name)
	if _, err = warned(err, ""); err != nil {
		return out, err
	}
	return tenants.ListedProject{
		Project:   tenants.Project{ID: made.ID, Organization: o.Name, Slug: made.Slug, Name: made.Name},
		CreatedAt: made.CreatedAt, OrganizationID: o.ID,
	}, nil
}

// CreateKey creates a key of a project and returns its clear value.
func (t Operator) CreateKey(
	ctx context.Context, call engine.Call, organization, slug, name string,
) (out tenants.Key, err error) {
	p, err := t.Tenants.Project(ctx, organization, slug)
	if err != nil {
		return out, err
	}
	if n := utf8.RuneCountInString(name); n < 1 || n > limit.KeyName || strings.ContainsRune(name, 0) {
		return out, fault.New(fault.Invalid, fault.CodeKeyNameInvalid, "a key needs a name of 1 to %d characters",
			limit.KeyName)
	}
	made, err := t.Service.CreateKey(ctx, callIn(p.OrganizationID, call), p.Slug, name)
	warning, err := warned(err, "the service lags: the key is taken shortly")
	if err != nil {
		return out, err
	}
	return tenants.Key{
		ID: made.ID, Project: p.Slug, Name: made.Name, Prefix: made.KeyPrefix, Suffix: made.KeySuffix,
		CreatedAt: made.CreatedAt, Key: made.Key, Warning: warning,
	}, nil
}

// RevealKey returns a live key with its clear value.
func (t Operator) RevealKey(ctx context.Context, call engine.Call, organization, slug, id string) (tenants.Key, error) {
	p, k, err := t.Tenants.Key(ctx, organization, slug, id)
	if err != nil {
		return k, err
	}
	k.Key, err = t.Service.RevealKey(ctx, callIn(p.OrganizationID, call), p.Slug, id)
	return k, err
}

// RevokeKey revokes a live key.
func (t Operator) RevokeKey(ctx context.Context, call engine.Call, organization, slug, id string) (tenants.Key, error) {
	p, k, err := t.Tenants.Key(ctx, organization, slug, id)
	if err != nil {
		return k, err
	}
	k.RevokedAt = &call.ReceivedAt
	k.Warning, err = warned(t.Service.RevokeKey(ctx, callIn(p.OrganizationID, call), p.Slug, id),
		"the service lags: the key is refused shortly")
	return k, err
}

// callIn returns the call in an organization.
func callIn(organization uuid.UUID, c engine.Call) engine.Call {
	c.Principal.OrganizationID = organization
	return c
}
