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
	"github.com/annals-project/annals/internal/tenants"
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

// SetPlan puts an organization on a plan from the next call on. The first metered plan grants the
// starting credits. The organization is named by name or id, "" is the only one. Its faults are
// not-found and invalid-request.
func (s *Service) SetPlan(
	ctx context.Context, call Call, org string, plan metering.Plan,
) (tenants.Organization, error) {
	if err := s.checkPlan(plan); err != nil {
		return tenants.Organization{}, err
	}
	return s.changeOrganization(ctx, call, org, func(
		ctx context.Context, o registry.OrganizationCreated, state organization.State, out *tenants.Organization,
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
				out.Granted = metering.Credits(grant.Tenths)
			}
		}
		return changes, nil
	})
}

// GrantCredits adds credits to an organization, in tenths. If tenths is negative, it takes some
// back, at most what is left. The fault is invalid-request for 0, or for an organization that is
// not metered, which has no credits.
func (s *Service) GrantCredits(ctx context.Context, call Call, org string, tenths int64) (tenants.Organization, error) {
	if tenths == 0 || tenths > maxGrant || tenths < -maxGrant {
		return tenants.Organization{}, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"grant more or less than 0 credits, and at most %s", metering.Credits(maxGrant))
	}
	return s.changeOrganization(ctx, call, org, func(
		ctx context.Context, o registry.OrganizationCreated, state organization.State, out *tenants.Organization,
	) ([]event.Event, error) {
		if !state.Plan.Metered() {
			return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest,
				"organization %q is on no metered plan, so that it has no credits; set a plan first", o.Name)
		}
		left, err := s.left(ctx, o.OrganizationID, call.ReceivedAt)
		if err != nil {
			return nil, err
		}
		granted := max(tenths, -left)
		out.Granted, out.Left = metering.Credits(granted), metering.Credits(left+granted)
		if granted == 0 {
			return nil, nil
		}
		return []event.Event{organization.CreditsGranted{
			OrganizationID: o.OrganizationID, Kind: metering.Bought, Tenths: granted,
			Month: metering.Month(call.ReceivedAt), GrantedAt: call.ReceivedAt,
		}}, nil
	})
}

// maxGrant is the most tenths of a credit of one grant or cap: far above any use, far below an
// overflow.
const maxGrant = 1e15

// SetSpendCap bounds what an organization may be charged in a UTC month, in tenths of a credit; nil
// removes the cap.
func (s *Service) SetSpendCap(ctx context.Context, call Call, org string, tenths *int64) (tenants.Organization, error) {
	if tenths != nil && (*tenths < 0 || *tenths > maxGrant) {
		return tenants.Organization{}, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"a spend cap is 0 to %s credits, or none", metering.Credits(maxGrant))
	}
	return s.changeOrganization(ctx, call, org, func(
		_ context.Context, o registry.OrganizationCreated, state organization.State, out *tenants.Organization,
	) ([]event.Event, error) {
		out.SpendCap = tenants.Cap(tenths)
		if same(state.SpendCapTenths, tenths) {
			return nil, nil
		}
		return []event.Event{
			organization.SpendCapSet{OrganizationID: o.OrganizationID, Tenths: tenths, SetAt: call.ReceivedAt},
		}, nil
	})
}

// CredentialsFile is the file of keys that the first start writes.
type CredentialsFile interface {
	Path() string
	// ReplaceManagementKey writes a key if the file holds a management key whose hash (in hexadecimal) is that of a
	// former key. It reports whether it did.
	ReplaceManagementKey(isFormer func(hash string) bool, clear string) (replaced bool, err error)
}

// RotateManagementKey replaces the management key of an organization, or creates one, also in the credentials file if
// that holds a key of the organization; after a crash that may be one that is older than the last. The key before is
// refused from its next call, or there is a warning.
func (s *Service) RotateManagementKey(ctx context.Context, call Call, org string) (tenants.Organization, error) {
	drawn, err := secret.NewManagementKey()
	if err != nil {
		return tenants.Organization{}, err
	}
	var isFormer func(hash string) bool
	changed, err := s.changeOrganization(ctx, call, org, func(
		_ context.Context, o registry.OrganizationCreated, state organization.State, _ *tenants.Organization,
	) ([]event.Event, error) {
		isFormer = state.Held
		return []event.Event{managementKeySet(o.OrganizationID, drawn, call.ReceivedAt)}, nil
	})
	out := tenants.Organization{ID: changed.ID, Name: changed.Name, ManagementKey: drawn.Clear}
	if out.Warning, err = warned(err, "the service lags: the former key is refused shortly"); err != nil {
		return tenants.Organization{}, err
	}
	if s.credentials == nil {
		return out, nil
	}
	replaced, err := s.credentials.ReplaceManagementKey(isFormer, drawn.Clear)
	switch {
	case err != nil:
		out.Warning = s.credentials.Path() + " could not be rewritten: " + err.Error()
	case replaced:
		out.CredentialsFile = s.credentials.Path()
	}
	return out, nil
}

// changeOrganization decides on the organization that an operator names. It returns once every
// projection of it has applied the change.
func (s *Service) changeOrganization(ctx context.Context, call Call, nameOrID string,
	decide func(
		context.Context, registry.OrganizationCreated, organization.State, *tenants.Organization,
	) ([]event.Event, error),
) (tenants.Organization, error) {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	o, err := s.organization(decideCtx, nameOrID)
	if err != nil {
		return tenants.Organization{}, err
	}
	var out tenants.Organization
	at, err := s.journal.decideOrganization(
		decideCtx,
		o.OrganizationID,
		call.newMeta,
		func(state organization.State) ([]event.Event, error) {
			out = tenants.Organization{
				ID: o.OrganizationID, Name: o.Name, Plan: state.Plan, SpendCap: tenants.Cap(state.SpendCapTenths),
			}
			return decide(decideCtx, o, state, &out)
		},
	)
	if err != nil {
		return tenants.Organization{}, err
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
