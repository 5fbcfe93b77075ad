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
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/tenants"
)

// organizationProjections are the projections of an organization's parts: it is prepared once they
// have applied all of them.
var organizationProjections = [...]string{projection.Access, projection.Usage}

// Preparing reads the organizations that are not prepared, up to what the projection has applied. A
// prepared organization stays prepared.
type Preparing interface {
	Preparing(ctx context.Context) ([]uuid.UUID, error)
}

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
	ctx context.Context, call Call, in NewOrganization,
) (out tenants.Organization, err error) {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
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
func (s *Service) addOwner(ctx context.Context, call Call, created *registry.OrganizationCreated, email string) error {
	if email == "" {
		return nil
	}
	state, err := s.registry.read(ctx)
	if err == nil {
		err = checkName(state, created.Name)
	}
	if err != nil {
		return err
	}
	created.OwnerID, _, err = s.enterPerson(ctx, call, email, joining(created.OrganizationID, email, s.journal.Now()))
	return err
}

func checkName(state registry.State, name string) error {
	if taken, ok := state.Organization(name); ok {
		return fault.New(fault.Conflict, fault.CodeConflict, "there is an organization %q already", taken.Name)
	}
	return nil
}

// register appends the creation of an organization, which reserves its name.
func (s *Service) register(ctx context.Context, call Call, created registry.OrganizationCreated) error {
	_, err := runDecision(ctx, s.journal, decision[registry.State]{
		stream: stream.Registry, read: s.registry.readHead, meta: call.newMeta,
		decide: func(_ context.Context, state registry.State) ([]event.Event, error) {
			return []event.Event{created}, checkName(state, created.Name)
		},
	})
	return err
}

// PrepareOrganizations continues the preparation of every organization that is not prepared,
// after a crash. The projections must have applied what the log held
// at the start, and must be running.
func (s *Service) PrepareOrganizations(ctx context.Context, call Call) error {
	var only []uuid.UUID
	if s.preparing != nil {
		var err error
		if only, err = s.preparing.Preparing(ctx); err != nil || len(only) == 0 {
			return err
		}
	}
	state, err := s.registry.read(ctx)
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
	ctx context.Context, call Call, created registry.OrganizationCreated, key *secret.Key,
) error {
	id := created.OrganizationID
	parts := partsOf(created, key, call.ReceivedAt)
	prepared := false
	at, err := s.journal.decideOrganization(ctx, id, call.newMeta, func(state organization.State) ([]event.Event, error) {
		missing := state.Missing(parts)
		prepared = state.Prepared && len(missing) == 0
		return missing, nil
	})
	if err != nil || prepared {
		return err
	}
	if err := waitVisible(ctx, s.waiter, at, organizationProjections[:]...); err != nil {
		return err
	}
	at, err = s.journal.decideOrganization(ctx, id, call.newMeta, func(state organization.State) ([]event.Event, error) {
		if state.Prepared {
			return nil, nil
		}
		return []event.Event{organization.Prepared{OrganizationID: id, PreparedAt: call.ReceivedAt}}, nil
	})
	if err != nil {
		return err
	}
	return waitVisible(ctx, s.waiter, at, projection.Access)
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

// readOrganization folds the stream of an organization.
func readOrganization(ctx context.Context, l *Journal, id uuid.UUID) (organization.State, error) {
	state, _, err := fold[organization.State](ctx, l, stream.Name(stream.Organization, id))
	return state, err
}

// decideOrganization decides on an organization. The position is that of its last event.
func (l *Journal) decideOrganization(
	ctx context.Context, id uuid.UUID, meta func() event.Meta, decide func(organization.State) ([]event.Event, error),
) (eventstore.Position, error) {
	name := stream.Name(stream.Organization, id)
	done, err := runDecision(ctx, l, decision[organization.State]{
		stream: name, read: folded[organization.State](l, name), meta: meta,
		decide: func(_ context.Context, state organization.State) ([]event.Event, error) { return decide(state) },
	})
	return done.Position, err
}

// organization returns the organization with a name or an id, or the only one if nameOrID is "".
// Its faults are not-found, and invalid-request with a list if there are several.
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
