package commands

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/internal/secret"
)

// Accounts know what organizations were charged and have left, as far as the projections are.
type Accounts interface {
	// Charged is what all projects were charged in a month ("2006-01"), in tenths of a credit, metered or not.
	Charged(ctx context.Context, organization uuid.UUID, month string) (tenths int64, err error)
	// Balance is the balance in the UTC month of an instant.
	Balance(ctx context.Context, organization uuid.UUID, at time.Time) (metering.Balance, error)
}

// Changed is an organization as a change of it answers.
type Changed struct {
	ID   uuid.UUID
	Name string
	Plan metering.Plan
	// SpendCapTenths is nil where there is none.
	SpendCapTenths *int64
	// GrantedTenths is what the change granted: starting credits, bought ones, or less than 0 where credits were taken back.
	GrantedTenths int64
	// LeftTenths is what can be spent, nil where nothing is metered or the change is not about credits.
	LeftTenths *int64
}

// SetPlan puts an organization on a plan, from the next call on; the first metered one brings the starting credits. The organization
// is named by name or id, "" is the only one. Its faults are not-found and invalid-request.
func (s *Service) SetPlan(ctx context.Context, call Call, org string, plan metering.Plan) (Changed, error) {
	if err := s.checkPlan(plan); err != nil {
		return Changed{}, err
	}
	return s.changeOrganization(ctx, call, org, func(ctx context.Context, o registry.OrganizationCreated, state organization.State, out *Changed) ([]event.Event, error) {
		out.Plan = plan
		change := organization.Change{OrganizationID: o.OrganizationID, Plan: plan, At: call.ReceivedAt}
		if state.Plan != plan {
			var err error
			if change.ChargedTenths, err = s.charged(ctx, o.OrganizationID, call.ReceivedAt); err != nil {
				return nil, err
			}
		}
		changes := state.SetPlan(change)
		for _, e := range changes {
			if grant, ok := e.(organization.CreditsGranted); ok {
				out.GrantedTenths = grant.Tenths
			}
		}
		return changes, nil
	})
}

// GrantCredits adds credits to what an organization has, in tenths, or takes some back where that is less than 0, never more than
// are left. An organization on no metered plan has no credits: invalid-request, as is 0.
func (s *Service) GrantCredits(ctx context.Context, call Call, org string, tenths int64) (Changed, error) {
	if tenths == 0 || tenths > maxGrant || tenths < -maxGrant {
		return Changed{}, fault.New(fault.Invalid, fault.CodeInvalidRequest, "grant more or less than 0 credits, and at most %s", metering.Credits(maxGrant))
	}
	return s.changeOrganization(ctx, call, org, func(ctx context.Context, o registry.OrganizationCreated, state organization.State, out *Changed) ([]event.Event, error) {
		if !state.Plan.Metered() {
			return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "organization %q is on no metered plan, so that it has no credits; set a plan first", o.Name)
		}
		left, err := s.left(ctx, o.OrganizationID, call.ReceivedAt)
		if err != nil {
			return nil, err
		}
		out.GrantedTenths = max(tenths, -left)
		left += out.GrantedTenths
		out.LeftTenths = &left
		if out.GrantedTenths == 0 {
			return nil, nil
		}
		return []event.Event{organization.CreditsGranted{
			OrganizationID: o.OrganizationID, Kind: metering.Bought, Tenths: out.GrantedTenths, Month: metering.Month(call.ReceivedAt), GrantedAt: call.ReceivedAt,
		}}, nil
	})
}

// maxGrant is the most tenths of a credit that one command grants, or that a cap says: far above any use, far below an overflow.
const maxGrant = 1e15

// SetSpendCap bounds what an organization may be charged in a UTC month, in tenths of a credit; nil is no bound.
func (s *Service) SetSpendCap(ctx context.Context, call Call, org string, tenths *int64) (Changed, error) {
	if tenths != nil && (*tenths < 0 || *tenths > maxGrant) {
		return Changed{}, fault.New(fault.Invalid, fault.CodeInvalidRequest, "a spend cap is 0 to %s credits, or none", metering.Credits(maxGrant))
	}
	return s.changeOrganization(ctx, call, org, func(_ context.Context, o registry.OrganizationCreated, state organization.State, out *Changed) ([]event.Event, error) {
		out.SpendCapTenths = tenths
		if same(state.SpendCapTenths, tenths) {
			return nil, nil
		}
		return []event.Event{organization.SpendCapSet{OrganizationID: o.OrganizationID, Tenths: tenths, SetAt: call.ReceivedAt}}, nil
	})
}

// Rotated is the new management key of an organization: its clear value is shown only here, and the one before is refused.
type Rotated struct {
	ID   uuid.UUID
	Name string
	Key  secret.Key
	// Held says of the hash of a key in hexadecimal that the organization had it before.
	Held func(hash string) bool
}

// RotateManagementKey replaces the management key of an organization, or gives it one where it has none. The former one is refused
// from its next call.
func (s *Service) RotateManagementKey(ctx context.Context, call Call, org string) (Rotated, error) {
	drawn, err := secret.NewManagementKey()
	if err != nil {
		return Rotated{}, err
	}
	out := Rotated{Key: drawn}
	changed, err := s.changeOrganization(ctx, call, org, func(_ context.Context, o registry.OrganizationCreated, state organization.State, _ *Changed) ([]event.Event, error) {
		out.Held = state.Held
		return []event.Event{managementKeySet(o.OrganizationID, drawn, call.ReceivedAt)}, nil
	})
	out.ID, out.Name = changed.ID, changed.Name
	return out, err
}

// changeOrganization decides on the stream of the organization that an operator means, and answers once every projection that holds
// it has the change.
func (s *Service) changeOrganization(ctx context.Context, call Call, nameOrID string,
	decide func(context.Context, registry.OrganizationCreated, organization.State, *Changed) ([]event.Event, error),
) (Changed, error) {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	o, err := s.organization(decideCtx, nameOrID)
	if err != nil {
		return Changed{}, err
	}
	var out Changed
	at, err := s.appendToOrganization(decideCtx, call, o.OrganizationID, func(state organization.State) ([]event.Event, error) {
		out = Changed{ID: o.OrganizationID, Name: o.Name, Plan: state.Plan, SpendCapTenths: state.SpendCapTenths}
		return decide(decideCtx, o, state, &out)
	})
	if err != nil {
		return Changed{}, err
	}
	// A plan or a cap that begins to bind counts what was answered before it, which was not reserved: the facts have to be there.
	return out, visible(ctx, s.Waiter, at, append(organizationProjections[:], projectionDataPoints)...)
}

// charged is what an organization was charged in the month of an instant, every call answered before included.
func (s *Service) charged(ctx context.Context, id uuid.UUID, at time.Time) (int64, error) {
	if err := s.accountsAtHead(ctx); err != nil {
		return 0, err
	}
	return s.Accounts.Charged(ctx, id, metering.Month(at))
}

// left is what an organization can spend, every call answered before included.
func (s *Service) left(ctx context.Context, id uuid.UUID, at time.Time) (int64, error) {
	if err := s.accountsAtHead(ctx); err != nil {
		return 0, err
	}
	balance, err := s.Accounts.Balance(ctx, id, at)
	return balance.LeftTenths(), err
}

// accountsAtHead waits until what accounts are read from has passed the head of the log.
func (s *Service) accountsAtHead(ctx context.Context) error {
	head, err := s.Log.Store.Head(ctx)
	if err != nil {
		return unavailable(err)
	}
	ctx, cancel := context.WithTimeout(ctx, visibleTimeout)
	defer cancel()
	return s.Waiter.Wait(ctx, head, projectionUsage, projectionDataPoints)
}

// same reports whether two figures that may be missing are the same.
func same(a, b *int64) bool {
	return a == b || a != nil && b != nil && *a == *b
}
