package commands_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/tenants"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

func (w *fixture) projectTypes(slug string) []string {
	w.t.Helper()
	state := w.registry()
	p, ok := state.Project(w.call.Principal.OrganizationID, slug)
	if !ok {
		w.t.Fatalf("no project %q", slug)
	}
	return typesOf(w.read(stream.Name(stream.Project, p.ProjectID)))
}

func TestSetArchived(t *testing.T) {
	w, _ := metered(t)
	for _, archived := range []bool{true, true, false, false} {
		got, err := w.SetArchived(t.Context(), w.call, "", "default", archived)
		if err != nil || got.IsArchived != archived || got.Slug != "default" {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	wantTypes(t, w.projectTypes("default"), "project.key-created.v1", "project.archived.v1", "project.unarchived.v1")
	wantFault(t, errorOf(w.SetArchived(t.Context(), w.call, "", "none-such", true)), "not-found")
}

func TestSetCaps(t *testing.T) {
	w, _ := metered(t)
	number := func(n int64) *int64 { return &n }
	ingestion := func(n *int64) tenancy.Caps { return tenancy.Caps{SetIngestion: true, Ingestion: n} }
	credit := func(n *int64) tenancy.Caps { return tenancy.Caps{SetCredit: true, CreditTenths: n} }
	for _, c := range []struct {
		name              string
		set               tenancy.Caps
		ingestion, credit *int64
	}{
		{"nothing", tenancy.Caps{}, nil, nil},
		{"one", ingestion(number(5)), number(5), nil},
		{"the other keeps the first", credit(number(0)), number(5), number(0)},
		{"the same", credit(number(0)), number(5), number(0)},
		{"none keeps the other", ingestion(nil), nil, number(0)},
		{"both", tenancy.Caps{SetIngestion: true, SetCredit: true, Ingestion: number(0), CreditTenths: number(1e15)}, number(0), number(1e15)},
	} {
		got, err := w.SetCaps(t.Context(), w.call, "", "default", c.set)
		if err != nil || !cmp.Equal(got.IngestionCap, c.ingestion) || !cmp.Equal(got.CreditCap, tenants.Cap(c.credit)) {
			t.Fatalf("%s: %+v, %v", c.name, got, err)
		}
	}
	const capsSet = "project.caps-set.v1"
	wantTypes(t, w.projectTypes("default"), "project.key-created.v1", capsSet, capsSet, capsSet, capsSet)
	negative, huge := number(-1), number(1e15+1)
	for _, set := range []tenancy.Caps{ingestion(negative), credit(negative), ingestion(huge), credit(huge)} {
		wantFault(t, errorOf(w.SetCaps(t.Context(), w.call, "", "default", set)), "invalid-request")
	}
}

func TestSetCaps_ProjectOfAnotherOrganization(t *testing.T) {
	w, _ := metered(t)
	acme := tenancy.NewOrganization{Name: "Acme", Plan: metering.Flex}
	runtest.Must(t, errorOf(w.CreateOrganization(t.Context(), w.call, acme)))
	before := w.projectTypes("default")
	wantFault(t, errorOf(w.SetArchived(t.Context(), w.call, "Acme", "default", true)), "not-found")
	_, err := w.SetCaps(t.Context(), w.call, "Acme", "default", tenancy.Caps{SetIngestion: true})
	wantFault(t, err, "not-found")
	wantTypes(t, w.projectTypes("default"), before...)
}

func TestCreateProject_LimitOfThePlan(t *testing.T) {
	w, _ := metered(t)
	w.setPlan(metering.PayAsYouGo) // three, and "default" is one
	for range 2 {
		if got, err := w.CreateProject(t.Context(), w.call, "More"); err != nil || !got.Metered {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if _, err := w.SetArchived(t.Context(), w.call, "", "more", true); err != nil {
		t.Fatal(err) // an archived project counts
	}
	f := wantFault(t, errorOf(w.CreateProject(t.Context(), w.call, "More")), "project-limit-reached")
	if diff := cmp.Diff(map[string]any{"limit": 3, "projects": 3}, f.Data); diff != "" {
		t.Error(diff)
	}
	neighbour, err := w.CreateOrganization(t.Context(), w.call,
		tenancy.NewOrganization{Name: "Acme", Plan: metering.PayAsYouGo})
	runtest.Must(t, err)
	call := w.call
	call.Principal.OrganizationID = neighbour.ID
	if got, err := w.CreateProject(t.Context(), call, "More"); err != nil || got.Slug != "more" {
		t.Errorf("the neighbour's first: %+v, %v", got, err)
	}
	w.setPlan(metering.Flex)
	if _, err := w.CreateProject(t.Context(), w.call, "More"); err != nil {
		t.Errorf("after a change of plan: %v", err)
	}
	w.setPlan(metering.SelfHosted)
	for range 20 {
		if got, err := w.CreateProject(t.Context(), w.call, "More"); err != nil || got.Metered {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	w.setPlan(metering.Flex)
	wantFault(t, errorOf(w.CreateProject(t.Context(), w.call, "More")), "project-limit-reached")
}

// Two processes create projects concurrently. Together they create exactly as many as the plan has.
func TestCreateProject_LimitOverTwoProcesses(t *testing.T) {
	w, _ := metered(t)
	w.setPlan(metering.PayAsYouGo) // three, and "default" is one
	other := fixtureOver(t, w.store)
	errs := make(chan error, 12)
	for i := range cap(errs) {
		service := []*fixture{w, other}[i%2]
		go func() {
			_, err := service.CreateProject(t.Context(), w.call, "More")
			errs <- err
		}()
	}
	created := 0
	for range cap(errs) {
		if err := <-errs; err == nil {
			created++
		} else {
			wantFault(t, err, "project-limit-reached")
		}
	}
	state := w.registry()
	if n := state.Projects(w.call.Principal.OrganizationID); created != 2 || n != 3 {
		t.Errorf("%d created, %d there", created, n)
	}
}

// vault is a Vault in memory. It fails if fails is set.
type vault struct {
	kept  map[uuid.UUID]string
	fails error
}

func (v *vault) Keep(_ context.Context, id uuid.UUID, clear string) error {
	if v.fails == nil {
		v.kept[id] = clear
	}
	return v.fails
}

func (v *vault) Reveal(_ context.Context, id uuid.UUID) (string, bool, error) {
	clear, ok := v.kept[id]
	return clear, ok, v.fails
}

func (v *vault) Drop(_ context.Context, ids ...uuid.UUID) error {
	for _, id := range ids {
		if v.fails == nil {
			delete(v.kept, id)
		}
	}
	return v.fails
}

func TestVault_KeyIsStoredUntilRevoked(t *testing.T) {
	w, a := metered(t)
	v := &vault{kept: map[uuid.UUID]string{}}
	w.Service = commands.New(commands.Config{Journal: w.log, Waiter: noWait{}, Accounts: a, Vault: v})
	key, err := w.CreateKey(t.Context(), w.call, "default", "app")
	if err != nil || v.kept[uuid.MustParse(key.ID)] != key.Key || len(v.kept) != 1 {
		t.Fatalf("kept %v of %+v, %v", v.kept, key, err)
	}
	v.fails = errors.New("no answer")
	before := w.projectTypes("default")
	wantFault(t, errorOf(w.CreateKey(t.Context(), w.call, "default", "app")), "service-unavailable")
	wantTypes(t, w.projectTypes("default"), before...)
	// A key is revoked even if the vault fails: a later start deletes its clear value.
	if err := w.RevokeKey(t.Context(), w.call, "default", key.ID); err != nil {
		t.Error(err)
	}
	v.fails = nil
	if key, err = w.CreateKey(t.Context(), w.call, "default", "app"); err != nil {
		t.Fatal(err)
	}
	if err := w.RevokeKey(t.Context(), w.call, "default", key.ID); err != nil || len(v.kept) != 1 {
		t.Errorf("kept %v, %v", v.kept, err)
	}
}

func TestDescribeProject_NameAndDescription(t *testing.T) {
	w := peopled(t)
	id := w.projectIn("Acme")
	call := w.call
	call.Principal.OrganizationID = w.org("Acme")
	describe := func(slug, name, description string) error {
		return w.DescribeProject(t.Context(), call, slug, name, description)
	}
	for name, c := range map[string]struct {
		err  error
		code string
	}{
		"no name":            {describe("project", "", ""), "project-name-invalid"},
		"a long description": {describe("project", "Project", strings.Repeat("ü", 1001)), "invalid-request"},
		"a NUL":              {describe("project", "Project", "\x00"), "invalid-request"},
		"a foreign project":  {describe("default", "Project", ""), "not-found"},
	} {
		t.Run(name, func(t *testing.T) { _ = wantFault(t, c.err, c.code) })
	}
	for _, d := range [][2]string{
		{"Project", ""}, {"Project", "New"}, {"Project", "New"}, {"Other", "New"}, {"Project", ""}, {"Project", strings.Repeat("ü", 1000)},
	} {
		runtest.Must(t, describe("project", d[0], d[1]))
	}
	facts := w.read(stream.Name(stream.Project, id))
	const described = "project.described.v1"
	wantTypes(t, typesOf(facts), described, described, described, described)
	p, err := w.SetArchived(t.Context(), call, "Acme", "project", true)
	if err != nil || p.Name != "Project" {
		t.Errorf("archived %+v, %v", p, err)
	}
}

// oneTenant finds one organization with the project "default", or what it created.
type oneTenant struct {
	id   uuid.UUID
	keys []tenants.Key
}

func (o *oneTenant) Organization(_ context.Context, name string) (out tenants.ListedOrganization, err error) {
	if out.ID, out.Name = o.id, "Annals"; name != "" && name != out.Name {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no organization %q", name)
	}
	return out, err
}

func (o *oneTenant) Project(ctx context.Context, organization, slug string) (p tenants.ListedProject, err error) {
	_, err = o.Organization(ctx, organization)
	p.Slug, p.OrganizationID = slug, o.id
	return p, err
}

func (o *oneTenant) Key(
	ctx context.Context, organization, slug, id string,
) (p tenants.ListedProject, k tenants.Key, err error) {
	p, err = o.Project(ctx, organization, slug)
	for _, k := range o.keys {
		if k.ID == id {
			return p, k, err
		}
	}
	return p, k, fault.New(fault.NotFound, fault.CodeNotFound, "no such key")
}

// neverVisible is a waiter for projections that do not catch up.
type neverVisible struct{}

func (neverVisible) Wait(context.Context, eventstore.Position, ...string) error {
	return errors.New("late")
}

func TestTenancy_ProjectsAndKeys(t *testing.T) {
	w, _ := metered(t)
	found := &oneTenant{id: w.call.Principal.OrganizationID}
	w.call.Principal.OrganizationID = uuid.Nil // the caller is of none
	for name, waiter := range map[string]engine.Waiter{"visible": noWait{}, "late": neverVisible{}} {
		of := tenancy.Operator{Tenants: found, Service: commands.New(commands.Config{Journal: w.log, Waiter: waiter}).Tenancy}
		late := name == "late"
		made, err := of.CreateProject(t.Context(), w.call, "", name)
		if err != nil || made.Slug != name || made.Organization != "Annals" || made.OrganizationID != found.id {
			t.Fatalf("%s: project %+v, %v", name, made, err)
		}
		k, err := of.CreateKey(t.Context(), w.call, "Annals", made.Slug, "app")
		if err != nil || k.Key == "" || k.Project != made.Slug || (k.Warning != "") != late {
			t.Fatalf("%s: key %+v, %v", name, k, err)
		}
		found.keys = append(found.keys, k)
		revoked, err := of.RevokeKey(t.Context(), w.call, "", made.Slug, k.ID)
		if err != nil || revoked.RevokedAt == nil || (revoked.Warning != "") != late {
			t.Errorf("%s: revoked %+v, %v", name, revoked, err)
		}
		if _, err := of.RevokeKey(t.Context(), w.call, "", made.Slug, k.ID); err == nil && !late {
			t.Errorf("%s: a revoked key is revoked again", name)
		}
	}
}

func TestTenancy_Refusals(t *testing.T) {
	w, _ := metered(t)
	of := tenancy.Operator{Tenants: &oneTenant{id: w.call.Principal.OrganizationID}, Service: w.Service.Tenancy}
	before := len(w.projectTypes("default"))
	for name, key := range map[string]string{"empty": "", "long": strings.Repeat("a", limit.KeyName+1), "zero": "a\x00"} {
		_, err := of.CreateKey(t.Context(), w.call, "", "default", key)
		if f := wantFault(t, err, "key-name-invalid"); f.Msg != "a key needs a name of 1 to 64 characters" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, call := range map[string]func() error{
		"project": func() error { _, err := of.CreateProject(t.Context(), w.call, "none", "x"); return err },
		"key":     func() error { _, err := of.CreateKey(t.Context(), w.call, "none", "default", "x"); return err },
		"reveal":  func() error { _, err := of.RevealKey(t.Context(), w.call, "", "default", "x"); return err },
		"revoke":  func() error { _, err := of.RevokeKey(t.Context(), w.call, "", "default", "x"); return err },
	} {
		t.Log(name)
		wantFault(t, call(), "not-found")
	}
	if after := len(w.projectTypes("default")); after != before {
		t.Errorf("%d events of %s were written", after-before, stream.Project)
	}
}
