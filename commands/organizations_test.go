package commands_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/tenants"
)

// bootstrapped opens the log as a first start does.
func (w *fixture) bootstrapped() {
	w.t.Helper()
	first := tenancy.FirstStart{
		Organization: "Annals", ManagementKey: secret.Describe("svc_mk_first"), ProjectKey: secret.Describe("svc_sk_first"), HashKey: make([]byte, 32), At: w.call.ReceivedAt,
	}
	runtest.Must(w.t, tenancy.Bootstrap(w.t.Context(), w.log, first))
}

// given appends the events that a test starts from to an empty stream.
func (w *fixture) given(name string, events ...event.Event) {
	w.t.Helper()
	meta := event.NewMeta("test", time.Now())
	runtest.Must(w.t, errorOf(w.log.Append(w.t.Context(), name, eventstore.NoStream, meta, events...)))
}

// registry folds the registry.
func (w *fixture) registry() registry.State {
	w.t.Helper()
	facts := w.read(stream.Registry)
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
	return w.read(stream.Name(stream.Organization, o.OrganizationID))
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
		runtest.Must(t, w.PrepareOrganizations(t.Context(), w.call))
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
	runtest.Must(t, w.PrepareOrganizations(t.Context(), w.call))
	facts := w.eventsOf("Crashed")
	wantTypes(t, typesOf(facts), memberAdded, planSet, granted, prepared)
	if g := facts[2].Event.(*organization.CreditsGranted); g.Kind != metering.Starting || g.Tenths != 4_000_000 {
		t.Errorf("granted %+v", g)
	}
	// The crash lost its management key, so a rotation creates one.
	runtest.Must(t, errorOf(w.RotateManagementKey(t.Context(), w.call, "")))
	wantTypes(t, typesOf(w.eventsOf("Crashed")), memberAdded, planSet, granted, prepared, keySet)
}

func TestPrepareOrganizations_CrashAfterTheKey(t *testing.T) {
	w := newFixture(t)
	id := uuid.New()
	w.given(stream.Registry, registry.LogOpened{LogID: uuid.New(), Format: registry.Format, OpenedAt: w.call.ReceivedAt},
		registry.OrganizationCreated{OrganizationID: id, Name: "Old", Plan: metering.SelfHosted, CreatedAt: w.call.ReceivedAt})
	w.given(stream.Name(stream.Organization, id),
		organization.ManagementKeySet{OrganizationID: id, KeyID: uuid.New(), Hash: "h", SetAt: w.call.ReceivedAt})
	runtest.Must(t, w.PrepareOrganizations(t.Context(), w.call))
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
		tenancy.NewOrganization{Name: "Acme", Plan: metering.PayAsYouGo, OwnerEmail: "ana@gmail.com"})
	runtest.Must(t, err)
	facts := w.eventsOf(got.ID.String())
	wantTypes(t, typesOf(facts), memberAdded, planSet, granted, keySet, prepared)
	if set := facts[3].Event.(*organization.ManagementKeySet); set.Hash != secret.HashText(got.ManagementKey) ||
		got.Granted != "150000" {
		t.Errorf("key %+v of receipt %+v", set, got)
	}
	for _, name := range []string{"Acme", "ACME", "annals"} {
		_, err := w.CreateOrganization(t.Context(), w.call, tenancy.NewOrganization{Name: name, Plan: metering.Flex})
		wantFault(t, err, "conflict")
	}
	for name, in := range map[string]tenancy.NewOrganization{
		"no name":            {Plan: metering.Flex},
		"an id for a name":   {Name: got.ID.String(), Plan: metering.Flex},
		"an unknown plan":    {Name: "Other", Plan: "gold"},
		"no plan":            {Name: "Other"},
		"an address that is": {Name: "Other", Plan: metering.Flex, OwnerEmail: "ana"},
	} {
		t.Run(name, func(t *testing.T) {
			wantFault(t, errorOf(w.CreateOrganization(t.Context(), w.call, in)), "invalid-request")
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
				tenancy.NewOrganization{Name: "Acme", Plan: metering.Flex})
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
	runtest.Must(t, service.PrepareOrganizations(t.Context(), w.call))
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
			tenancy.NewOrganization{Name: name, Plan: metering.Flex, OwnerEmail: "ana@acme.example"})
		runtest.Must(t, err)
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

// accounts folds plans and grants from the log. What projects were charged is a field.
type accounts struct {
	*fixture
	charged int64
}

func (a *accounts) Charged(context.Context, uuid.UUID, string) (int64, error) { return a.charged, nil }

func (a *accounts) Balance(ctx context.Context, id uuid.UUID, at time.Time) (metering.Balance, error) {
	facts, err := a.log.ReadFrom(ctx, "organization-"+id.String(), 0)
	l := metering.Ledger{Granted: map[string]metering.Granted{}, Charged: map[string]int64{metering.Month(at): a.charged}}
	for _, f := range facts {
		switch e := f.Event.(type) {
		case *organization.PlanSet:
			l.Plans = append(l.Plans, metering.PlanChange{Plan: e.Plan, Month: e.Month, ChargedTenths: e.ChargedTenths})
		case *organization.CreditsGranted:
			g := l.Granted[e.Month]
			if e.Kind == metering.Starting {
				g.StartingTenths += e.Tenths
			} else {
				g.BoughtTenths += e.Tenths
			}
			l.Granted[e.Month] = g
		}
	}
	return l.Balance(metering.DefaultPlanTerms(), metering.Month(at)), err
}

// metered returns a fixture with accounts and the first organization.
func metered(t *testing.T) (*fixture, *accounts) {
	t.Helper()
	w := newFixture(t)
	a := &accounts{fixture: w}
	w.Service = commands.New(commands.Config{Journal: w.log, Waiter: noWait{}, Accounts: a})
	w.bootstrapped()
	runtest.Must(t, w.PrepareOrganizations(t.Context(), w.call))
	w.call.Principal.OrganizationID = w.registry().Organizations[0].OrganizationID
	return w, a
}

func (w *fixture) setPlan(plan metering.Plan) tenants.Organization {
	w.t.Helper()
	changed, err := w.SetPlan(w.t.Context(), w.call, "Annals", plan)
	runtest.Must(w.t, err)
	return changed
}

func (w *fixture) grant(tenths int64) tenants.Organization {
	w.t.Helper()
	changed, err := w.GrantCredits(w.t.Context(), w.call, "", tenths)
	runtest.Must(w.t, err)
	return changed
}

func TestSetPlan_ExcludesEarlierCharges(t *testing.T) {
	w, a := metered(t)
	a.charged = 120
	if got := w.setPlan(metering.Flex); got.Plan != metering.Flex || got.Granted != "150000" ||
		got.Name != "Annals" {
		t.Errorf("changed %+v", got)
	}
	facts := w.eventsOf("Annals")
	wantTypes(t, typesOf(facts), planSet, keySet, prepared, planSet, granted)
	if e := facts[3].Event.(*organization.PlanSet); e.ChargedTenths != 120 || e.Month != "2026-05" {
		t.Errorf("event %+v", e)
	}
	w.setPlan(metering.Flex)
	if got := w.setPlan(metering.Enterprise); got.Granted != "" {
		t.Errorf("a second start: %+v", got)
	}
	w.setPlan(metering.SelfHosted)
	wantTypes(t, typesOf(w.eventsOf("Annals")), planSet, keySet, prepared, planSet, granted, planSet, planSet)
	wantFault(t, errorOf(w.SetPlan(t.Context(), w.call, "", "gold")), "invalid-request")
}

func TestGrantCredits_TakesBackAtMostWhatIsLeft(t *testing.T) {
	w, a := metered(t)
	wantFault(t, errorOf(w.GrantCredits(t.Context(), w.call, "", 10)), "invalid-request") // the plan is not metered
	w.setPlan(metering.Flex)
	for _, c := range []struct {
		name          string
		charged       int64
		tenths        int64
		granted, left int64
	}{
		{"granted", 0, 55, 55, 1_500_055},
		{"taken back", 0, -55, -55, 1_500_000},
		{"all but one", 0, -1_499_999, -1_499_999, 1},
		{"more than is left", 0, -2, -1, 0},
		{"nothing is left", 0, -1, 0, 0},
		{"again", 0, 100, 100, 100},
		{"after some was spent", 70, -40, -30, 0},
		{"after more was spent than there is", 300, -1, 0, 0},
	} {
		a.charged = c.charged
		got := w.grant(c.tenths)
		if got.Granted != metering.Credits(c.granted) || got.Left != metering.Credits(c.left) {
			t.Fatalf("%s: granted %s, left %s", c.name, got.Granted, got.Left)
		}
	}
	before := len(w.eventsOf("Annals"))
	for _, tenths := range []int64{0, 1e15 + 1, -1e15 - 1} {
		wantFault(t, errorOf(w.GrantCredits(t.Context(), w.call, "", tenths)), "invalid-request")
	}
	if after := len(w.eventsOf("Annals")); after != before {
		t.Errorf("%d events were written", after-before)
	}
}

// Two processes take credits back concurrently. Together they take at most what is left.
func TestGrantCredits_ConcurrentProcesses(t *testing.T) {
	w, a := metered(t)
	w.setPlan(metering.Flex) // 150,000
	other := fixtureOver(t, w.store)
	other.Service = commands.New(commands.Config{Journal: other.log, Waiter: noWait{}, Accounts: a})
	taken := make(chan json.Number, 8)
	for i := range cap(taken) {
		service := []*fixture{w, other}[i%2]
		go func() {
			changed, err := service.GrantCredits(t.Context(), w.call, "", -400_000)
			if err != nil {
				t.Error(err)
			}
			taken <- changed.Granted
		}()
	}
	var all int64
	for range cap(taken) {
		credits, err := (<-taken).Float64()
		runtest.Must(t, err)
		all += int64(10 * credits)
	}
	var stored int64
	for _, f := range w.eventsOf("Annals") {
		if g, ok := f.Event.(*organization.CreditsGranted); ok && g.Kind == metering.Bought {
			stored += g.Tenths
		}
	}
	if all != -1_500_000 || stored != all {
		t.Errorf("the answers have %d taken back, the log has %d", -all, -stored)
	}
}

func TestSetSpendCap(t *testing.T) {
	w, _ := metered(t)
	number := func(n int64) *int64 { return &n }
	for _, c := range []*int64{number(0), number(0), number(1e15), nil, nil} {
		got, err := w.SetSpendCap(t.Context(), w.call, "", c)
		if err != nil || !cmp.Equal(got.SpendCap, tenants.Cap(c)) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	const spendCapSet = "organization.spend-cap-set.v1"
	wantTypes(t, typesOf(w.eventsOf("Annals"))[3:], spendCapSet, spendCapSet, spendCapSet)
	for _, c := range []*int64{number(-1), number(1e15 + 1)} {
		wantFault(t, errorOf(w.SetSpendCap(t.Context(), w.call, "", c)), "invalid-request")
	}
}

func TestRotateManagementKey_ReportsFormerKeys(t *testing.T) {
	w, _ := metered(t)
	file := &credentialsFile{}
	w.Service = commands.New(commands.Config{Journal: w.log, Waiter: noWait{}, Credentials: file})
	first, err := w.RotateManagementKey(t.Context(), w.call, "annals")
	runtest.Must(t, err)
	second, err := w.RotateManagementKey(t.Context(), w.call, "")
	runtest.Must(t, err)
	facts := w.eventsOf("Annals")
	set := facts[len(facts)-1].Event.(*organization.ManagementKeySet)
	if set.Hash != secret.HashText(second.ManagementKey) || first.ManagementKey == second.ManagementKey {
		t.Errorf("set %+v", set)
	}
	for key, want := range map[string]bool{first.ManagementKey: true, "svc_mk_first": true, "svc_mk_other": false} {
		if file.isFormer(secret.HashText(key)) != want {
			t.Errorf("%s is known as a former key: %v", key, !want)
		}
	}
	if file.clear != second.ManagementKey || second.CredentialsFile != "keys" || second.Warning != "" {
		t.Errorf("file %+v, %+v", file, second)
	}
	file.err = errors.New("disk full")
	if third, err := w.RotateManagementKey(t.Context(), w.call, ""); err != nil || third.ManagementKey == "" ||
		third.CredentialsFile != "" || third.Warning != "keys could not be rewritten: disk full" {
		t.Errorf("%+v, %v", third, err)
	}
}

// A new key is shown although projections are late, because it can be shown only now. A warning names what is not
// visible yet.
func TestOrganizations_NewKeyWhileProjectionsAreLate(t *testing.T) {
	w, _ := metered(t)
	w.Service = commands.New(commands.Config{Journal: w.log, Waiter: neverVisible{}, Credentials: &credentialsFile{}})
	rotated, err := w.RotateManagementKey(t.Context(), w.call, "annals")
	if err != nil || rotated.ManagementKey == "" || rotated.Warning == "" || rotated.CredentialsFile == "" {
		t.Errorf("rotated %+v, %v", rotated, err)
	}
	made, err := w.CreateOrganization(t.Context(), w.call, tenancy.NewOrganization{Name: "Acme", Plan: metering.Flex})
	if err != nil || made.ManagementKey == "" || made.Warning == "" {
		t.Errorf("created %+v, %v", made, err)
	}
	_, err = w.SetCaps(t.Context(), w.call, "annals", "default", tenancy.Caps{SetIngestion: true, Ingestion: new(int64)})
	wantFault(t, err, "service-unavailable")
}

// credentialsFile takes every key, or fails.
type credentialsFile struct {
	isFormer func(hash string) bool
	clear    string
	err      error
}

func (*credentialsFile) Path() string { return "keys" }

func (f *credentialsFile) ReplaceManagementKey(isFormer func(hash string) bool, clear string) (bool, error) {
	f.isFormer, f.clear = isFormer, clear
	return true, f.err
}

func TestSetSpendCap_OrganizationByNameOrID(t *testing.T) {
	w, _ := metered(t)
	other, err := w.CreateOrganization(t.Context(), w.call, tenancy.NewOrganization{Name: "Acme", Plan: metering.Flex})
	runtest.Must(t, err)
	for _, org := range []string{"acme", "ACME", other.ID.String()} {
		got, err := w.SetSpendCap(t.Context(), w.call, org, nil)
		if err != nil || got.ID != other.ID {
			t.Errorf("%s: %+v, %v", org, got, err)
		}
	}
	f := wantFault(t, errorOf(w.SetSpendCap(t.Context(), w.call, "", nil)), "invalid-request")
	for _, name := range []string{"Annals (", "Acme (" + other.ID.String()} {
		if !contains(f.Msg, name) {
			t.Errorf("%q does not name %s", f.Msg, name)
		}
	}
	wantFault(t, errorOf(w.SetSpendCap(t.Context(), w.call, "none such", nil)), "not-found")
}

// An organization is prepared only after the projections have applied its parts. A start with late
// projections reports that.
func TestPrepareOrganizations_LateProjections(t *testing.T) {
	w := newFixture(t)
	w.bootstrapped()
	late := commands.New(commands.Config{
		Journal: engine.NewJournal(w.store, w.log.Codec, slog.New(slog.DiscardHandler)),
		Waiter:  neverThere{},
	})
	f := wantFault(t, late.PrepareOrganizations(t.Context(), w.call), "service-unavailable")
	if f.Data["committed"] != true {
		t.Errorf("data %v", f.Data)
	}
	wantTypes(t, typesOf(w.eventsOf("Annals")), planSet, keySet)
}

// neverThere is a Waiter for stopped projections.
type neverThere struct{}

func (neverThere) Wait(context.Context, eventstore.Position, ...string) error {
	return context.DeadlineExceeded
}
