package commands_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/secret"
)

// bootstrapped opens the log as a first start does.
func (w *fixture) bootstrapped() {
	w.t.Helper()
	first := commands.FirstStart{
		Organization: "Annals", ManagementKey: secret.Describe("svc_mk_first"), ProjectKey: secret.Describe("svc_sk_first"), HashKey: make([]byte, 32), At: w.call.ReceivedAt,
	}
	if err := commands.Bootstrap(w.t.Context(), w.log, first); err != nil {
		w.t.Fatal(err)
	}
}

// given appends the events that a test starts from to an empty stream.
func (w *fixture) given(name string, events ...event.Event) {
	w.t.Helper()
	meta := event.NewMeta("test", time.Now())
	if _, err := w.log.Append(w.t.Context(), name, eventstore.NoStream, meta, events...); err != nil {
		w.t.Fatal(err)
	}
}

// registry folds the registry.
func (w *fixture) registry() registry.State {
	w.t.Helper()
	facts, err := w.log.ReadFrom(w.t.Context(), stream.Registry, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	var state registry.State
	for _, f := range facts {
		state.Evolve(f.Event)
	}
	return state
}

// eventsOf returns the decoded events of the organization with a name.
func (w *fixture) eventsOf(name string) []eventstore.DecodedEvent {
	w.t.Helper()
	state := w.registry()
	o, ok := state.Organization(name)
	if !ok {
		w.t.Fatalf("no organization %q", name)
	}
	facts, err := w.log.ReadFrom(w.t.Context(), stream.Name(stream.Organization, o.OrganizationID), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return facts
}

func typesOf(facts []eventstore.DecodedEvent) []string {
	types := make([]string, len(facts))
	for i, f := range facts {
		types[i] = f.Type
	}
	return types
}

const (
	memberAdded = "organization.member-added.v1"
	accessSet   = "organization.project-access-set.v1"
	signInReset = "organization.sign-in-reset.v1"
	factorSet   = "organization.second-factor-set.v1"
	planSet     = "organization.plan-set.v1"
	granted     = "organization.credits-granted.v1"
	keySet      = "organization.management-key-set.v1"
	prepared    = "organization.prepared.v1"
)

func TestPrepareOrganizations_FirstStart(t *testing.T) {
	w := newFixture(t)
	w.bootstrapped()
	w.bootstrapped() // a second process
	wantTypes(t, typesOf(w.eventsOf("annals")), planSet, keySet)
	for range 2 {
		if err := w.PrepareOrganizations(t.Context(), w.call); err != nil {
			t.Fatal(err)
		}
	}
	wantTypes(t, typesOf(w.eventsOf("annals")), planSet, keySet, prepared)
}

func TestPrepareOrganizations_CrashBeforeTheParts(t *testing.T) {
	w := newFixture(t)
	w.given(
		stream.Registry,
		registry.LogOpened{LogID: uuid.New(), Format: registry.Format, OpenedAt: w.call.ReceivedAt},
		registry.OrganizationCreated{
			OrganizationID: uuid.New(),
			Name:           "Crashed",
			Plan:           metering.Flex,
			OwnerID:        uuid.New(),
			WorkEmail:      true,
			CreatedAt:      w.call.ReceivedAt,
		},
	)
	if err := w.PrepareOrganizations(t.Context(), w.call); err != nil {
		t.Fatal(err)
	}
	facts := w.eventsOf("Crashed")
	wantTypes(t, typesOf(facts), memberAdded, planSet, granted, prepared)
	if g := facts[2].Event.(*organization.CreditsGranted); g.Kind != metering.Starting || g.Tenths != 4_000_000 {
		t.Errorf("granted %+v", g)
	}
	// The crash lost its management key, so a rotation creates one.
	if _, err := w.RotateManagementKey(t.Context(), w.call, ""); err != nil {
		t.Fatal(err)
	}
	wantTypes(t, typesOf(w.eventsOf("Crashed")), memberAdded, planSet, granted, prepared, keySet)
}

func TestPrepareOrganizations_CrashAfterTheKey(t *testing.T) {
	w := newFixture(t)
	id := uuid.New()
	w.given(stream.Registry, registry.LogOpened{LogID: uuid.New(), Format: registry.Format, OpenedAt: w.call.ReceivedAt},
		registry.OrganizationCreated{OrganizationID: id, Name: "Old", Plan: metering.SelfHosted, CreatedAt: w.call.ReceivedAt})
	w.given(stream.Name(stream.Organization, id),
		organization.ManagementKeySet{OrganizationID: id, KeyID: uuid.New(), Hash: "h", SetAt: w.call.ReceivedAt})
	if err := w.PrepareOrganizations(t.Context(), w.call); err != nil {
		t.Fatal(err)
	}
	facts := w.eventsOf("Old")
	wantTypes(t, typesOf(facts), keySet, planSet, prepared)
	if p := facts[1].Event.(*organization.PlanSet); p.Plan != metering.SelfHosted {
		t.Errorf("plan %+v", p)
	}
}

func TestCreateOrganization(t *testing.T) {
	w := newFixture(t)
	w.bootstrapped()
	got, err := w.CreateOrganization(t.Context(), w.call,
		commands.NewOrganization{Name: "Acme", Plan: metering.PayAsYouGo, OwnerEmail: "ana@gmail.com"})
	if err != nil {
		t.Fatal(err)
	}
	facts := w.eventsOf(got.ID.String())
	wantTypes(t, typesOf(facts), memberAdded, planSet, granted, keySet, prepared)
	if set := facts[3].Event.(*organization.ManagementKeySet); set.Hash != secret.HashText(got.ManagementKey) ||
		got.Granted != "150000" {
		t.Errorf("key %+v of receipt %+v", set, got)
	}
	for _, name := range []string{"Acme", "ACME", "annals"} {
		_, err := w.CreateOrganization(t.Context(), w.call, commands.NewOrganization{Name: name, Plan: metering.Flex})
		wantFault(t, err, "conflict")
	}
	for name, in := range map[string]commands.NewOrganization{
		"no name":            {Plan: metering.Flex},
		"an id for a name":   {Name: got.ID.String(), Plan: metering.Flex},
		"an unknown plan":    {Name: "Other", Plan: "gold"},
		"no plan":            {Name: "Other"},
		"an address that is": {Name: "Other", Plan: metering.Flex, OwnerEmail: "ana"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.CreateOrganization(t.Context(), w.call, in)
			wantFault(t, err, "invalid-request")
		})
	}
	state := w.registry()
	if n := len(state.Organizations); n != 2 {
		t.Errorf("%d organizations", n)
	}
}

// Two processes create the same name concurrently. Exactly one succeeds.
func TestCreateOrganization_ConcurrentProcesses(t *testing.T) {
	w := newFixture(t)
	w.bootstrapped()
	other := fixtureOver(t, w.store)
	errs := make(chan error, 8)
	for i := range 8 {
		service := []*fixture{w, other}[i%2]
		go func() {
			_, err := service.CreateOrganization(t.Context(), w.call,
				commands.NewOrganization{Name: "Acme", Plan: metering.Flex})
			errs <- err
		}()
	}
	created := 0
	for range 8 {
		if err := <-errs; err == nil {
			created++
		} else {
			wantFault(t, err, "conflict")
		}
	}
	state := w.registry()
	names := slices.Collect(func(yield func(string) bool) {
		for _, o := range state.Organizations {
			if !yield(o.Name) {
				return
			}
		}
	})
	if created != 1 || !slices.Equal(names, []string{"Annals", "Acme"}) {
		t.Errorf("%d created: %v", created, names)
	}
}

// preparing are the organizations that a projection reports as not prepared.
type preparing []uuid.UUID

func (p preparing) Preparing(context.Context) ([]uuid.UUID, error) { return p, nil }

func TestPrepareOrganizations_ReadsOnlyUnprepared(t *testing.T) {
	w := newFixture(t)
	one, two := uuid.New(), uuid.New()
	w.given(stream.Registry, registry.LogOpened{LogID: uuid.New(), Format: registry.Format, OpenedAt: w.call.ReceivedAt},
		registry.OrganizationCreated{OrganizationID: one, Name: "One", Plan: metering.Flex, CreatedAt: w.call.ReceivedAt},
		registry.OrganizationCreated{OrganizationID: two, Name: "Two", Plan: metering.Flex, CreatedAt: w.call.ReceivedAt})
	service := commands.New(commands.Config{Journal: w.log, Waiter: noWait{}, Preparing: preparing{two, uuid.New()}})
	if err := service.PrepareOrganizations(t.Context(), w.call); err != nil {
		t.Fatal(err)
	}
	wantTypes(t, typesOf(w.eventsOf("One")))
	wantTypes(t, typesOf(w.eventsOf("Two")), planSet, granted, prepared)
}

// One process prepares an organization that another one is creating, and has no key to add. The
// other process adds the key.
func TestCreateOrganization_PreparedByAnotherProcess(t *testing.T) {
	w := newFixture(t)
	w.bootstrapped()
	other := fixtureOver(t, w.store)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := other.PrepareOrganizations(t.Context(), w.call); err != nil {
				stopped <- err
				return
			}
		}
	}()
	for n := range 20 {
		name := fmt.Sprint("Acme ", n)
		got, err := w.CreateOrganization(t.Context(), w.call,
			commands.NewOrganization{Name: name, Plan: metering.Flex, OwnerEmail: "ana@acme.example"})
		if err != nil {
			t.Fatal(err)
		}
		types := typesOf(w.eventsOf(name))
		slices.Sort(types)
		wantTypes(t, types, granted, keySet, memberAdded, planSet, prepared)
		for _, f := range w.eventsOf(name) {
			if set, ok := f.Event.(*organization.ManagementKeySet); ok && set.Hash != secret.HashText(got.ManagementKey) {
				t.Errorf("%s has a key that differs from the answer", name)
			}
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
