package server

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/tenants"
)

const ownerEmail = "owner@annals.local"

// withOwner is a service that makes an owner, and the links that it shows at a terminal.
func withOwner(t *testing.T) (h *harness, links *[]string) {
	links = &[]string{}
	h = newHarness(t)
	h.set = func(c *Config) {
		c.SignIn = SignIn{OwnerEmail: ownerEmail, ShowLink: func(link string) { *links = append(*links, link) }}
	}
	return h, links
}

func (h *harness) signIn(email, password string) (signin.SignedIn, error) {
	return h.signin.SignIn(h.t.Context(), signin.Attempt{Email: email, Password: password})
}

func TestOwners_FirstStart(t *testing.T) {
	unraced(t)
	h, links := withOwner(t)
	h.start()
	values := h.credentials()
	password := values[datafolder.OwnerPasswordName]
	if values[datafolder.OwnerEmailName] != ownerEmail || len(password) < signin.MinPassword || len(*links) != 1 {
		t.Fatalf("credentials have the names %v, links %v", maps.Keys(values), *links)
	}
	if info, err := os.Stat(filepath.Join(h.dir, datafolder.CredentialsFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	in, err := h.signIn(ownerEmail, password)
	runtest.Must(t, err)
	p, _, err := h.read.access.Memberships(t.Context(), in.Person)
	runtest.Must(t, err)
	if len(p.Memberships) != 1 || p.Memberships[0].Role != "owner" || !p.Memberships[0].First {
		t.Errorf("person %+v", p)
	}
	states, err := h.signin.States(t.Context(), in.Person)
	runtest.Must(t, err)
	if !h.signin.Verified(states[in.Person], ownerEmail) {
		t.Error("who reads the generated password has the machine, and can let no agent in")
	}

	h.stop()
	h.start() // nobody took the account over
	if got := h.credentials()[datafolder.OwnerPasswordName]; got != password || len(*links) != 2 {
		t.Errorf("another password %v, links %v", got != password, *links)
	}
	token := (*links)[1][strings.LastIndex((*links)[1], "/")+1:]
	if (*links)[1] != h.urls.Console+"/link/"+token {
		t.Errorf("link %s", (*links)[1])
	}
	_, err = h.signin.SetPassword(t.Context(), token, signin.Attempt{Password: "a password of my own"})
	runtest.Must(t, err)
	if _, err := h.signIn(ownerEmail, password); err == nil {
		t.Error("the generated password works after the link was used")
	}

	h.stop()
	h.start()
	values = h.credentials()
	if values[datafolder.OwnerPasswordName] != "" || values[datafolder.ProjectKeyName] == "" || len(*links) != 2 {
		t.Errorf("after the take-over: password %q, links %v", values[datafolder.OwnerPasswordName], *links)
	}
	if _, err := h.signIn(ownerEmail, "a password of my own"); err != nil {
		t.Error(err)
	}
	h.stop()
}

// Organizations without an owner, also of an older store, get the person who has a password already.
func TestOwners_FurtherOrganizations(t *testing.T) {
	unraced(t)
	h, links := withOwner(t)
	h.start()
	_, err := h.signin.SetPassword(t.Context(), (*links)[0][strings.LastIndex((*links)[0], "/")+1:],
		signin.Attempt{Password: "a password of my own"})
	runtest.Must(t, err)
	create := func(name, owner string) {
		t.Helper()
		_, err := operatorapi.CreateOrganization.Call(t.Context(), operatorapi.Dial(h.dir), operatorapi.NewOrganization{
			NewOrganization: commands.NewOrganization{Name: name, Plan: metering.SelfHosted, OwnerEmail: owner}, By: "operator",
		})
		runtest.Must(t, err)
	}
	create("Acme", "")
	create("Other", "ana@other.example")
	h.stop()
	h.start()
	owners := map[string]string{}
	for _, o := range h.organizations() {
		owners[o.Name] = o.OwnerEmail
	}
	want := map[string]string{"Annals": ownerEmail, "Acme": ownerEmail, "Other": "ana@other.example"}
	if !maps.Equal(owners, want) {
		t.Errorf("owners %v, want %v", owners, want)
	}
	if got := h.credentials()[datafolder.OwnerPasswordName]; got != "" {
		t.Error("a person with a password gets a generated one")
	}
	h.stop()
}

// A crash between the file and the password leaves a person who cannot sign in, until the next start.
func TestOwners_InterruptedStart(t *testing.T) {
	unraced(t)
	h, _ := withOwner(t)
	h.start()
	password := h.credentials()[datafolder.OwnerPasswordName]
	in, err := h.signIn(ownerEmail, password)
	runtest.Must(t, err)
	runtest.Must(t, h.signin.EndPerson(t.Context(), in.Person))
	h.stop()
	h.start()
	if _, err := h.signIn(ownerEmail, h.credentials()[datafolder.OwnerPasswordName]); err != nil {
		t.Error(err)
	}
	h.stop()
}

func TestPersonLink_OfTheOperator(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newTenant(t)
	ask := func(email, organization string) (operatorapi.PersonLink, error) {
		return operatorapi.LinkPerson.Call(t.Context(), operatorapi.Dial(h.dir), operatorapi.PersonLinkRequest{
			Target: h.target(organization), Email: email,
		})
	}
	owner := func() string {
		list := h.organizations()
		return list[slices.IndexFunc(list, func(o tenants.ListedOrganization) bool { return o.ID == h.home() })].OwnerEmail
	}
	made, err := ask(h.mail("ana"), "")
	runtest.Must(t, err)
	token := made.Link[strings.LastIndex(made.Link, "/")+1:]
	in, err := h.signin.SetPassword(t.Context(), token, signin.Attempt{Password: "a password of my own"})
	runtest.Must(t, err)
	states, err := h.signin.States(t.Context(), in.Person)
	runtest.Must(t, err)
	if !h.signin.Verified(states[in.Person], h.mail("ana")) || owner() != h.mail("ana") {
		t.Errorf("state %+v, the owner is %q", states, owner())
	}
	if _, err := ask(h.mail("ana"), ""); err != nil {
		t.Errorf("a second link: %v", err)
	}
	if _, err := ask(h.mail("bo"), ""); err == nil || !strings.Contains(err.Error(), "has an owner") {
		t.Errorf("a stranger: %v", err)
	}
	if _, err := ask(h.mail("bo"), "Nobody's"); err == nil {
		t.Error("an organization that does not exist has a new owner")
	}
}

// Credentials of people go with them.
func TestSignIn_OfRemovedPeople(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newTenant(t)
	service, call := h.people()
	person, err := service.AddMember(t.Context(), call, h.home(),
		commands.NewMember{Email: h.mail("ana"), Role: organization.Owner})
	runtest.Must(t, err)
	_, err = h.signin.GeneratePassword(t.Context(), person, h.mail("ana"), "a password of my own")
	runtest.Must(t, err)
	in, err := h.signIn(h.mail("ana"), "a password of my own")
	runtest.Must(t, err)
	runtest.Must(t, h.signin.Tidy(t.Context()))
	if states, err := h.signin.States(t.Context(), in.Person); err != nil || len(states) != 1 {
		t.Fatalf("the credentials of a person who lives: %v, %v", states, err)
	}
	runtest.Must(t, service.RemovePerson(t.Context(), call, in.Person))
	runtest.Must(t, h.signin.Tidy(t.Context()))
	if states, err := h.signin.States(t.Context(), in.Person); err != nil || len(states) != 0 {
		t.Errorf("the credentials of a removed person: %v, %v", states, err)
	}
}
