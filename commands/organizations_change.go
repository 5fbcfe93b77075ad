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
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/secret"
)

// Accounts read what organizations were charged and have left, up to what the projections have
// applied.
type Accounts interface {
	// Charged returns what all projects were charged in a month ("2006-01"), in tenths of a credit,
	// metered or not.
	Charged(ctx context.Context, organization uuid.UUID, month string) (tenths int64, err error)
	// Balance returns the balance in the UTC month of an instant.
	Balance(ctx context.Context, organization uuid.UUID, at time.Time) (metering.Balance, error)
}

// Changed is an organization after a change.
type Changed struct {
	ID   uuid.UUID
	Name string
	Plan metering.Plan
	// SpendCapTenths is nil without a cap.
	SpendCapTenths *int64
	// GrantedTenths is what the change granted: starting credits or bought ones, negative if credits
	// were taken back.
	GrantedTenths int64
	// LeftTenths is what can be spent. It is nil if the organization is not metered, or the change is
	// not about credits.
	LeftTenths *int64
}

// SetPlan puts an organization on a plan from the next call on. The first metered plan grants the
// starting credits. The organization is named by name or id, "" is the only one. Its faults are
// not-found and invalid-request.
func (s *Service) SetPlan(ctx context.Context, call Call, org string, plan metering.Plan) (Changed, error) {
	if err := s.checkPlan(plan); err != nil {
		return Changed{}, err
	}
	return s.changeOrganization(ctx, call, org, func(
		ctx context.Context, o registry.OrganizationCreated, state organization.State, out *Changed,
	) ([]event.Event, error) {
		out.Plan = plan
		change := organization.Change{
			OrganizationID: o.OrganizationID, Plan: plan, WorkEmail: o.WorkEmail, At: call.ReceivedAt,
		}
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

// GrantCredits adds credits to an organization, in tenths. If tenths is negative, it takes some
// back, at most what is left. The fault is invalid-request for 0, or for an organization that is
// not metered, which has no credits.
func (s *Service) GrantCredits(ctx context.Context, call Call, org string, tenths int64) (Changed, error) {
	if tenths == 0 || tenths > maxGrant || tenths < -maxGrant {
		return Changed{}, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"grant more or less than 0 credits, and at most %s", metering.Credits(maxGrant))
	}
	return s.changeOrganization(ctx, call, org, func(
		ctx context.Context, o registry.OrganizationCreated, state organization.State, out *Changed,
	) ([]event.Event, error) {
		if !state.Plan.Metered() {
			return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest,
				"organization %q is on no metered plan, so that it has no credits; set a plan first", o.Name)
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
			OrganizationID: o.OrganizationID, Kind: metering.Bought, Tenths: out.GrantedTenths,
			Month: metering.Month(call.ReceivedAt), GrantedAt: call.ReceivedAt,
		}}, nil
	})
}

// maxGrant is the most tenths of a credit of one grant or cap: far above any use, far below an
// overflow.
const maxGrant = 1e15

// SetSpendCap bounds what an organization may be charged in a UTC month, in tenths of a credit; nil
// removes the cap.
func (s *Service) SetSpendCap(ctx context.Context, call Call, org string, tenths *int64) (Changed, error) {
	if tenths != nil && (*tenths < 0 || *tenths > maxGrant) {
		return Changed{}, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"a spend cap is 0 to %s credits, or none", metering.Credits(maxGrant))
	}
	return s.changeOrganization(ctx, call, org, func(
		_ context.Context, o registry.OrganizationCreated, state organization.State, out *Changed,
	) ([]event.Event, error) {
		out.SpendCapTenths = tenths
		if same(state.SpendCapTenths, tenths) {
			return nil, nil
		}
		return []event.Event{
			organization.SpendCapSet{OrganizationID: o.OrganizationID, Tenths: tenths, SetAt: call.ReceivedAt},
		}, nil
	})
}

// Rotated is the new management key of an organization. Its clear value is shown only here; the key
// before it is refused.
type Rotated struct {
	ID   uuid.UUID
	Name string
	Key  secret.Key
	// Held reports whether the organization had a key with a hash (in hexadecimal) before.
	Held func(hash string) bool
}

// RotateManagementKey replaces the management key of an organization, or creates one. The key
// before is refused from its next call.
func (s *Service) RotateManagementKey(ctx context.Context, call Call, org string) (Rotated, error) {
	drawn, err := secret.NewManagementKey()
	if err != nil {
		return Rotated{}, err
	}
	out := Rotated{Key: drawn}
	changed, err := s.changeOrganization(
		ctx,
		call,
		org,
		func(_ context.Context, o registry.OrganizationCreated, state organization.State, _ *Changed) ([]event.Event, error) {
			out.Held = state.Held
			return []event.Event{managementKeySet(o.OrganizationID, drawn, call.ReceivedAt)}, nil
		},
	)
	out.ID, out.Name = changed.ID, changed.Name
	return out, err
}

// changeOrganization decides on the organization that an operator names. It returns once every
// projection of it has applied the change.
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
	at, err := s.journal.decideOrganization(
		decideCtx,
		o.OrganizationID,
		call.newMeta,
		func(state organization.State) ([]event.Event, error) {
			out = Changed{ID: o.OrganizationID, Name: o.Name, Plan: state.Plan, SpendCapTenths: state.SpendCapTenths}
			return decide(decideCtx, o, state, &out)
		},
	)
	if err != nil {
		return Changed{}, err
	}
	// A new cap counts sends that were accepted before it without a reservation, so wait until they
	// are projected.
	return out, waitVisible(ctx, s.waiter, at, append(organizationProjections[:], projection.DataPoints)...)
}

// charged returns what an organization was charged in the month of an instant, including every
// answered call.
func (s *Service) charged(ctx context.Context, id uuid.UUID, at time.Time) (int64, error) {
	if err := s.accountsAtHead(ctx); err != nil {
		return 0, err
	}
	return s.accounts.Charged(ctx, id, metering.Month(at))
}

// left returns what an organization can spend, after every answered call.
func (s *Service) left(ctx context.Context, id uuid.UUID, at time.Time) (int64, error) {
	if err := s.accountsAtHead(ctx); err != nil {
		return 0, err
	}
	balance, err := s.accounts.Balance(ctx, id, at)
	return balance.LeftTenths(), err
}

// accountsAtHead waits until the projections of accounts have passed the head of the log.
func (s *Service) accountsAtHead(ctx context.Context) error {
	head, err := s.journal.Store.Head(ctx)
	if err != nil {
		return unavailable(err)
	}
	ctx, cancel := context.WithTimeout(ctx, visibleTimeout)
	defer cancel()
	return s.waiter.Wait(ctx, head, projection.Usage, projection.DataPoints)
}

// same reports whether two optional numbers are equal.
func same(a, b *int64) bool {
	return a == b || a != nil && b != nil && *a == *b
}
