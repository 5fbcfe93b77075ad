package commands

import (
	"cmp"
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/tenants"
)

// SetArchived archives a project, so that every call of its keys is refused, or unarchives it, from
// the next call on. A project that is so already is not a fault. The organization is named by name
// or id, "" is the only one. Its faults are not-found and invalid-request.
func (s *Service) SetArchived(
	ctx context.Context, call Call, org, slug string, archived bool,
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
func (s *Service) SetCaps(ctx context.Context, call Call, org, slug string, c Caps) (tenants.Project, error) {
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
	ctx context.Context, call Call, org, slug string, decide func(uuid.UUID, project.State) ([]event.Event, error),
) (tenants.Project, error) {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	o, err := s.organization(decideCtx, org)
	if err != nil {
		return tenants.Project{}, err
	}
	p, ok, err := s.registry.projectBySlug(decideCtx, o.OrganizationID, slug)
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
	return out, waitVisible(ctx, s.waiter, at, projection.Access, projection.DataPoints)
}
