package tenancy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/people"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/tenants"
)

// organizationProjections are the projections of an organization's parts: it is prepared once they
// have applied all of them.
var organizationProjections = [...]string{projection.Access, projection.Usage}

// NewOrganization is an organization to create. OwnerEmail is "" for no owner.
type NewOrganization struct {
	Name       string        `json:"name"`
	Plan       metering.Plan `json:"plan"`
	OwnerEmail string        `json:"ownerEmail,omitempty"`
}

// CreateOrganization creates an organization with its owner, plan, starting credits and management
// key, and returns the clear value of the key. It returns once its keys are accepted, or with a warning. Names are
// unique without regard to case. Its faults are invalid-request and conflict.
func (s *Service) CreateOrganization(
	ctx context.Context, call engine.Call, in NewOrganization,
) (out tenants.Organization, err error) {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	if err := s.checkOrganization(in); err != nil {
		return out, err
	}
	key, err := secret.NewManagementKey()
	if err != nil {
		return out, err
	}
	created := registry.OrganizationCreated{
		OrganizationID: uuid.New(), Name: in.Name, Plan: in.Plan, WorkEmail: organization.WorkEmail(in.OwnerEmail),
		CreatedAt: call.ReceivedAt,
	}
	if err := s.addOwner(ctx, call, &created, in.OwnerEmail); err != nil {
		return out, err
	}
	if err := s.register(ctx, call, created); err != nil {
		return out, err
	}
	out = tenants.Organization{
		ID: created.OrganizationID, Name: in.Name, Plan: in.Plan, OwnerEmail: in.OwnerEmail, CreatedAt: &created.CreatedAt,
		ManagementKey: key.Clear,
	}
	if in.Plan.Metered() {
		out.Granted = metering.Credits(organization.StartingTenths(created.WorkEmail))
	}
	out.Warning, err = warned(s.prepareOrganization(ctx, call, created, &key),
		"the service lags: calls of the organization are refused until it is prepared")
	return out, err
}

// warned returns a warning instead of the fault that a write is committed but not visible yet. A new key is shown even
// then, since it can be shown only now.
func warned(err error, warning string) (string, error) {
	if f, is := errors.AsType[*fault.Error](err); is && f.Data["committed"] == true {
		return warning, nil
	}
	return "", err
}

func (s *Service) checkOrganization(in NewOrganization) error {
	refuse := func(format string, args ...any) error {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, format, args...)
	}
	switch {
	case !organization.ValidName(in.Name):
		return refuse("the name must have up to 255 characters, at least two of them letters or digits, and be no id")
	case in.OwnerEmail != "" && !person.ValidEmail(in.OwnerEmail):
		return refuse("%q is no email address", in.OwnerEmail)
	default:
		return s.checkPlan(in.Plan)
	}
}

// addOwner finds or registers the owner of an organization that is about to be created. It refuses a
// name that is taken before it stores an address for it.
func (s *Service) addOwner(
	ctx context.Context, call engine.Call, created *registry.OrganizationCreated, email string,
) error {
	if email == "" {
		return nil
	}
	state, err := s.registry.Read(ctx)
	if err == nil {
		err = checkName(state, created.Name)
	}
	if err != nil {
		return err
	}
	join := people.Joining(created.OrganizationID, email, s.journal.Now())
	created.OwnerID, _, err = people.EnterPerson(ctx, s.journal, call, email, join)
	return err
}

func checkName(state registry.State, name string) error {
	if taken, ok := state.Organization(name); ok {
		return fault.New(fault.Conflict, fault.CodeConflict, "there is an organization %q already", taken.Name)
	}
	return nil
}

// register appends the creation of an organization, which reserves its name.
func (s *Service) register(ctx context.Context, call engine.Call, created registry.OrganizationCreated) error {
	_, err := engine.Decide(ctx, s.journal, engine.Decision[registry.State]{
		Stream: stream.Registry, Read: s.registry.ReadHead, Meta: call.NewMeta,
		Decide: func(_ context.Context, state registry.State) ([]event.Event, error) {
			return []event.Event{created}, checkName(state, created.Name)
		},
	})
	return err
}

// PrepareOrganizations continues the preparation of every organization that is not prepared,
// after a crash. The projections must have applied what the log held
// at the start, and must be running.
func (s *Service) PrepareOrganizations(ctx context.Context, call engine.Call) error {
	var only []uuid.UUID
	if s.preparing != nil {
		var err error
		if only, err = s.preparing.Preparing(ctx); err != nil || len(only) == 0 {
			return err
		}
	}
	state, err := s.registry.Read(ctx)
	if err != nil {
		return err
	}
	for _, o := range state.Organizations {
		if s.preparing != nil && !slices.Contains(only, o.OrganizationID) {
			continue
		}
		if err := s.prepareOrganization(ctx, call, o, nil); err != nil {
			return err
		}
	}
	return nil
}

// prepareOrganization adds the parts that an organization lacks, waits until the projections have
// applied them, and then lets its keys be accepted. It changes a prepared organization only if that
// lacks the key: of two processes that prepare it at once, one may have no key to add.
func (s *Service) prepareOrganization(
	ctx context.Context, call engine.Call, created registry.OrganizationCreated, key *secret.Key,
) error {
	id := created.OrganizationID
	parts := partsOf(created, key, call.ReceivedAt)
	prepared := false
	at, err := s.journal.DecideOrganization(ctx, id, call.NewMeta, func(state organization.State) ([]event.Event, error) {
		missing := state.Missing(parts)
		prepared = state.Prepared && len(missing) == 0
		return missing, nil
	})
	if err != nil || prepared {
		return err
	}
	if err := engine.WaitVisible(ctx, s.waiter, at, organizationProjections[:]...); err != nil {
		return err
	}
	at, err = s.journal.DecideOrganization(ctx, id, call.NewMeta, func(state organization.State) ([]event.Event, error) {
		if state.Prepared {
			return nil, nil
		}
		return []event.Event{organization.Prepared{OrganizationID: id, PreparedAt: call.ReceivedAt}}, nil
	})
	if err != nil {
		return err
	}
	return engine.WaitVisible(ctx, s.waiter, at, projection.Access)
}

// partsOf returns the parts of an organization.
func partsOf(created registry.OrganizationCreated, key *secret.Key, at time.Time) organization.Parts {
	parts := organization.Parts{
		OrganizationID: created.OrganizationID, Plan: created.Plan, OwnerID: created.OwnerID,
		WorkEmail: created.WorkEmail, At: at,
	}
	if key != nil {
		set := managementKeySet(created.OrganizationID, *key, at)
		parts.Key = &set
	}
	return parts
}

func managementKeySet(id uuid.UUID, key secret.Key, at time.Time) organization.ManagementKeySet {
	return organization.ManagementKeySet{
		OrganizationID: id, KeyID: uuid.New(), Hash: key.Hash, Prefix: key.Prefix, Suffix: key.Suffix, SetAt: at,
	}
}

// organization returns the organization with a name or an id, or the only one if nameOrID is "".
// Its faults are not-found, and invalid-request with a list if there are several.
func (s *Service) organization(ctx context.Context, nameOrID string) (registry.OrganizationCreated, error) {
	state, err := s.registry.Read(ctx)
	if err != nil {
		return registry.OrganizationCreated{}, err
	}
	if nameOrID == "" && len(state.Organizations) == 1 {
		return state.Organizations[0], nil
	}
	names := make([]string, len(state.Organizations))
	for i, o := range state.Organizations {
		names[i] = o.Name + " (" + o.OrganizationID.String() + ")"
	}
	list := strings.Join(names, ", ")
	if nameOrID == "" {
		return registry.OrganizationCreated{}, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"there are several organizations, name one with --org: %s", list)
	}
	if found, ok := state.Organization(nameOrID); ok {
		return found, nil
	}
	return registry.OrganizationCreated{}, fault.New(fault.NotFound, fault.CodeNotFound,
		"organization %q not found; known: %s", nameOrID, list)
}

// checkPlan refuses an unknown plan.
func (s *Service) checkPlan(plan metering.Plan) error {
	if _, ok := s.planTerms[plan]; !ok {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, "there is no plan %q: want %s, %s, %s or %s",
			string(plan), metering.SelfHosted, metering.PayAsYouGo, metering.Flex, metering.Enterprise)
	}
	return nil
}

// SetPlan puts an organization on a plan from the next call on. The first metered plan grants the
// starting credits. The organization is named by name or id, "" is the only one. Its faults are
// not-found and invalid-request.
func (s *Service) SetPlan(
	ctx context.Context, call engine.Call, org string, plan metering.Plan,
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
func (s *Service) GrantCredits(
	ctx context.Context, call engine.Call, org string, tenths int64,
) (tenants.Organization, error) {
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
func (s *Service) SetSpendCap(
	ctx context.Context, call engine.Call, org string, tenths *int64,
) (tenants.Organization, error) {
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

// RotateManagementKey replaces the management key of an organization, or creates one, also in the credentials file if
// that holds a key of the organization; after a crash that may be one that is older than the last. The key before is
// refused from its next call, or there is a warning.
func (s *Service) RotateManagementKey(ctx context.Context, call engine.Call, org string) (tenants.Organization, error) {
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
func (s *Service) changeOrganization(ctx context.Context, call engine.Call, nameOrID string,
	decide func(
		context.Context, registry.OrganizationCreated, organization.State, *tenants.Organization,
	) ([]event.Event, error),
) (tenants.Organization, error) {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	o, err := s.organization(decideCtx, nameOrID)
	if err != nil {
		return tenants.Organization{}, err
	}
	var out tenants.Organization
	at, err := s.journal.DecideOrganization(
		decideCtx,
		o.OrganizationID,
		call.NewMeta,
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
	return out, engine.WaitVisible(ctx, s.waiter, at, append(organizationProjections[:], projection.DataPoints)...)
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
		return engine.Unavailable(err)
	}
	ctx, cancel := context.WithTimeout(ctx, engine.VisibleTimeout)
	defer cancel()
	return s.waiter.Wait(ctx, head, projection.Usage, projection.DataPoints)
}

// same reports whether two optional numbers are equal.
func same(a, b *int64) bool {
	return a == b || a != nil && b != nil && *a == *b
}
