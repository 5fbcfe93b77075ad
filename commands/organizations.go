package commands

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/secret"
)

// organizationProjections are those that hold what belongs to an organization: it is prepared once they have all of it.
var organizationProjections = [...]string{projectionAccess, projectionUsage}

// Preparing knows the organizations that are not prepared, as far as a projection has seen. What is prepared stays so.
type Preparing interface {
	Preparing(ctx context.Context) ([]uuid.UUID, error)
}

// NewOrganization is what an operator creates an organization with; OwnerEmail "" names no owner.
type NewOrganization struct {
	Name       string
	Plan       metering.Plan
	OwnerEmail string
}

// OrganizationReceipt is an organization as its creation answers it. ManagementKey is the clear value, shown only here.
type OrganizationReceipt struct {
	ID             uuid.UUID     `json:"id"`
	Name           string        `json:"name"`
	Plan           metering.Plan `json:"plan"`
	OwnerEmail     string        `json:"ownerEmail,omitempty"`
	StartingTenths int64         `json:"-"`
	CreatedAt      time.Time     `json:"createdAt"`
	ManagementKey  string        `json:"managementKey"`
}

// CreateOrganization creates an organization with its owner, plan, starting credits and management key, and answers once its keys
// are served. Names are unique without regard to case. Its faults are invalid-request and conflict.
func (s *Service) CreateOrganization(ctx context.Context, call Call, in NewOrganization) (OrganizationReceipt, error) {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	if err := s.checkOrganization(in); err != nil {
		return OrganizationReceipt{}, err
	}
	key, err := secret.NewManagementKey()
	if err != nil {
		return OrganizationReceipt{}, err
	}
	created := registry.OrganizationCreated{
		OrganizationID: uuid.New(), Name: in.Name, Plan: in.Plan, OwnerEmail: in.OwnerEmail, CreatedAt: call.ReceivedAt,
	}
	if err := s.register(decideCtx, call, created); err != nil {
		return OrganizationReceipt{}, err
	}
	receipt := OrganizationReceipt{
		ID: created.OrganizationID, Name: in.Name, Plan: in.Plan, OwnerEmail: in.OwnerEmail, CreatedAt: created.CreatedAt, ManagementKey: key.Clear,
	}
	if in.Plan.Metered() {
		receipt.StartingTenths = organization.StartingTenths(in.OwnerEmail)
	}
	return receipt, s.prepareOrganization(decideCtx, call, created, &key)
}

func (s *Service) checkOrganization(in NewOrganization) error {
	refuse := func(format string, args ...any) error {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, format, args...)
	}
	switch {
	case !organization.ValidName(in.Name):
		return refuse("the name must have up to 255 characters, at least two of them letters or digits, and be no id")
	case in.OwnerEmail != "" && !organization.ValidEmail(in.OwnerEmail):
		return refuse("%q is no email address", in.OwnerEmail)
	default:
		return s.checkPlan(in.Plan)
	}
}

// register appends the creation, which decides the name.
func (s *Service) register(ctx context.Context, call Call, created registry.OrganizationCreated) error {
	release, err := s.Log.Serialize(ctx, stream.Registry)
	if err != nil {
		return unavailable(err)
	}
	defer release()
	for {
		state, err := s.registry.read(ctx)
		if err != nil {
			return err
		}
		if taken, ok := state.Organization(created.Name); ok {
			return fault.New(fault.Conflict, fault.CodeConflict, "there is an organization %q already", taken.Name)
		}
		_, err = s.Log.Append(ctx, stream.Registry, eventstore.Revision(state.Events-1), call.meta(uuid.New()), created)
		if !errors.Is(err, eventstore.ErrConflict) {
			return err
		}
	}
}

// PrepareOrganizations goes on with every organization whose preparation was not ended: one that a crash left behind, and those of
// a log from before organizations were prepared. The projections must have passed what the log held at the start, and be following it.
func (s *Service) PrepareOrganizations(ctx context.Context, call Call) error {
	var only []uuid.UUID
	if s.Preparing != nil {
		var err error
		if only, err = s.Preparing.Preparing(ctx); err != nil || len(only) == 0 {
			return err
		}
	}
	state, err := s.registry.read(ctx)
	if err != nil {
		return err
	}
	for _, o := range state.Organizations {
		if s.Preparing != nil && !slices.Contains(only, o.OrganizationID) {
			continue
		}
		if err := s.prepareOrganization(ctx, call, o, nil); err != nil {
			return err
		}
	}
	return nil
}

// prepareOrganization gives an organization the parts that it lacks, waits until the projections have all of it, and only then lets
// its keys be served. An organization that is prepared is left as it is, unless it lacks the key: two may be preparing it at once, and
// one of them has no key to give.
func (s *Service) prepareOrganization(ctx context.Context, call Call, created registry.OrganizationCreated, key *secret.Key) error {
	id := created.OrganizationID
	parts := partsOf(created, key, call.ReceivedAt)
	prepared := false
	at, err := s.appendToOrganization(ctx, call, id, func(state organization.State) ([]event.Event, error) {
		missing := state.Missing(parts)
		prepared = state.Prepared && len(missing) == 0
		return missing, nil
	})
	if err != nil || prepared {
		return err
	}
	if err := visible(ctx, s.Waiter, at, organizationProjections[:]...); err != nil {
		return err
	}
	at, err = s.appendToOrganization(ctx, call, id, func(state organization.State) ([]event.Event, error) {
		if state.Prepared {
			return nil, nil
		}
		return []event.Event{organization.Prepared{OrganizationID: id, PreparedAt: call.ReceivedAt}}, nil
	})
	if err != nil {
		return err
	}
	return visible(ctx, s.Waiter, at, projectionAccess)
}

// partsOf is what an organization is prepared with. Of logs from before, the plan is none.
func partsOf(created registry.OrganizationCreated, key *secret.Key, at time.Time) organization.Parts {
	plan := created.Plan
	if plan == "" {
		plan = metering.SelfHosted
	}
	parts := organization.Parts{OrganizationID: created.OrganizationID, Plan: plan, OwnerEmail: created.OwnerEmail, MemberID: uuid.New(), At: at}
	if key != nil {
		set := managementKeySet(created.OrganizationID, *key, at)
		parts.Key = &set
	}
	return parts
}

func managementKeySet(id uuid.UUID, key secret.Key, at time.Time) organization.ManagementKeySet {
	return organization.ManagementKeySet{OrganizationID: id, KeyID: uuid.New(), Hash: key.Hash, Prefix: key.Prefix, Suffix: key.Suffix, SetAt: at}
}

// readOrganization folds an organization's stream; at is the position of its last event.
func readOrganization(ctx context.Context, l *Log, id uuid.UUID) (state organization.State, at eventstore.Position, err error) {
	facts, err := l.ReadFrom(ctx, stream.Name(stream.Organization, id), 0)
	if err != nil {
		return organization.State{}, 0, err
	}
	for _, f := range facts {
		state.Evolve(f.Event)
		at = f.Position
	}
	return state, at, nil
}

// appendToOrganization decides on an organization's stream and appends at the revision that it decided on. The position is that of
// the change or, where nothing is to be changed, that of the last event.
func (s *Service) appendToOrganization(ctx context.Context, call Call, id uuid.UUID, decide func(organization.State) ([]event.Event, error)) (eventstore.Position, error) {
	return s.Log.decideOrganization(ctx, id, func() event.Meta { return call.meta(uuid.New()) }, decide)
}

func (l *Log) decideOrganization(ctx context.Context, id uuid.UUID, meta func() event.Meta, decide func(organization.State) ([]event.Event, error)) (eventstore.Position, error) {
	name := stream.Name(stream.Organization, id)
	release, err := l.Serialize(ctx, name)
	if err != nil {
		return 0, unavailable(err)
	}
	defer release()
	for {
		state, at, err := readOrganization(ctx, l, id)
		if err != nil {
			return 0, err
		}
		changes, err := decide(state)
		if err != nil || len(changes) == 0 {
			return at, err
		}
		done, err := l.Append(ctx, name, eventstore.Revision(state.Events-1), meta(), changes...)
		if errors.Is(err, eventstore.ErrConflict) {
			continue
		}
		return done.Position, err
	}
}

// organization is the organization that an operator means: the one of a name or an id, or the only one where neither is given.
// Its faults are not-found, and invalid-request that lists them where there are several.
func (s *Service) organization(ctx context.Context, nameOrID string) (registry.OrganizationCreated, error) {
	state, err := s.registry.read(ctx)
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
		return registry.OrganizationCreated{}, fault.New(fault.Invalid, fault.CodeInvalidRequest, "there are several organizations, name one with --org: %s", list)
	}
	if found, ok := state.Organization(nameOrID); ok {
		return found, nil
	}
	return registry.OrganizationCreated{}, fault.New(fault.NotFound, fault.CodeNotFound, "there is no organization %q, but there are: %s", nameOrID, list)
}

// checkPlan refuses a plan that there is not.
func (s *Service) checkPlan(plan metering.Plan) error {
	if _, ok := s.Tariff[plan]; !ok {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, "there is no plan %q: want %s, %s, %s or %s",
			string(plan), metering.SelfHosted, metering.PayAsYouGo, metering.Flex, metering.Enterprise)
	}
	return nil
}
