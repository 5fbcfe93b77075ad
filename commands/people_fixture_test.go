package commands_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/work"
)

const anas = "Ana@acme.example"

// peopled is a fixture with the organizations Annals, without an owner, and Acme, whose owner is Bo.
func peopled(t *testing.T) *fixture {
	t.Helper()
	w := newFixture(t)
	w.at(w.call.ReceivedAt)
	w.bootstrapped()
	w.create("Acme", "bo@acme.example")
	return w
}

// at sets the clock of the log.
func (w *fixture) at(now time.Time) { w.log.Now = func() time.Time { return now } }

func (w *fixture) create(name, owner string) {
	w.t.Helper()
	in := commands.NewOrganization{Name: name, Plan: metering.Flex, OwnerEmail: owner}
	if _, err := w.CreateOrganization(w.t.Context(), w.call, in); err != nil {
		w.t.Fatal(err)
	}
}

// org returns the id of the organization with a name, a random one if there is none.
func (w *fixture) org(name string) uuid.UUID {
	state := w.registry()
	if o, ok := state.Organization(name); ok {
		return o.OrganizationID
	}
	return uuid.New()
}

// projectIn creates a project of an organization.
func (w *fixture) projectIn(org string) uuid.UUID {
	w.t.Helper()
	call := w.call
	call.Principal.OrganizationID = w.org(org)
	p, err := w.CreateProject(w.t.Context(), call, "Project")
	if err != nil {
		w.t.Fatal(err)
	}
	return p.ID
}

func (w *fixture) add(org, email string, role organization.Role) uuid.UUID {
	w.t.Helper()
	id, err := w.AddMember(w.t.Context(), w.call, w.org(org), commands.NewMember{Email: email, Role: role})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// members returns the members of an organization with their roles. An erased person is "erased", one who
// is about to be is "removed".
func (w *fixture) members(org string) []string {
	w.t.Helper()
	var state organization.State
	for _, f := range w.eventsOf(org) {
		state.Evolve(f.Event)
	}
	var list []string
	for id, role := range state.Members {
		list = append(list, w.emailOf(id)+" "+string(role))
	}
	slices.Sort(list)
	return list
}

func (w *fixture) emailOf(id uuid.UUID) string {
	w.t.Helper()
	facts, err := w.log.ReadFrom(w.t.Context(), stream.Name(stream.Person, id), 0)
	if errors.Is(err, eventstore.ErrDeleted) {
		return "erased"
	} else if err != nil {
		w.t.Fatal(err)
	}
	var p person.State
	for _, f := range facts {
		p.Evolve(f.Event)
	}
	if p.Removed {
		return "removed"
	}
	return p.Email
}

// claims are the people that any address was claimed for, with the addresses that are not released.
func (w *fixture) claims() []work.Person {
	w.t.Helper()
	records, err := w.store.ReadAll(w.t.Context(), 0, 1<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []work.Person
	for _, r := range records {
		if stream.Category(r.Stream) != stream.Address {
			continue
		}
		e, err := w.log.Codec.Decode(r)
		if err != nil {
			w.t.Fatal(err)
		}
		of := func(id uuid.UUID) int {
			return slices.IndexFunc(all, func(p work.Person) bool { return p.ID == id })
		}
		switch e := e.(type) {
		case *person.AddressClaimed:
			if of(e.PersonID) < 0 {
				all = append(all, work.Person{ID: e.PersonID, ClaimedAt: e.ClaimedAt})
			}
			if p := &all[of(e.PersonID)]; !slices.Contains(p.Addresses, r.Stream) {
				p.Addresses = append(p.Addresses, r.Stream)
			}
		case *person.AddressReleased:
			p := &all[of(e.PersonID)]
			p.Addresses = slices.DeleteFunc(p.Addresses, func(a string) bool { return a == r.Stream })
		}
	}
	return all
}

// settle settles everybody, as a finisher does, and returns the addresses of those who live.
func (w *fixture) settle(now time.Time) []string {
	w.t.Helper()
	var alive []string
	for _, p := range w.claims() {
		for range 2 { // a second run changes nothing
			if _, err := w.log.SettlePerson(w.t.Context(), p, now); err != nil {
				w.t.Fatal(err)
			}
		}
		switch email := w.emailOf(p.ID); email {
		case "erased":
		case "removed":
			w.t.Errorf("person %s is not erased", p.ID)
		default:
			alive = append(alive, email)
		}
	}
	for _, p := range w.claims() {
		email := w.emailOf(p.ID)
		if email == "erased" {
			continue
		}
		name, err := w.log.Namespaces.AddressName(person.NormalEmail(email))
		if err != nil || !slices.Equal(p.Addresses, []string{name}) {
			w.t.Errorf("%s has the addresses %v, want %s, %v", email, p.Addresses, name, err)
		}
	}
	slices.Sort(alive)
	return alive
}
