package commands_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/people"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

func TestAddMember_OnePersonForAnAddress(t *testing.T) {
	w := peopled(t)
	id := w.add("Annals", anas, organization.Owner)
	for org, email := range map[string]string{"Annals": "ana@ACME.example", "Acme": "ANA@acme.example"} {
		if got := w.add(org, email, organization.Owner); got != id {
			t.Errorf("%s in %s is %s, want %s", email, org, got, id)
		}
	}
	if got, err := w.RegisterPerson(t.Context(), w.call, "ana@acme.example"); err != nil || got != id {
		t.Errorf("registered %s, %v", got, err)
	}
	if got, found, err := w.FindPerson(t.Context(), "ana@acme.example"); err != nil || !found || got != id {
		t.Errorf("found %s, %v, %v", got, found, err)
	}
	if got, found, err := w.FindPerson(t.Context(), "nobody@acme.example"); err != nil || found {
		t.Errorf("found %s, %v, %v", got, found, err)
	}
	w.wantMembers("Acme", anas+" owner", "bo@acme.example owner")
	if other := w.add("Acme", "ana+a@acme.example", organization.Member); other == id {
		t.Error("another address is of the same person")
	}
}

func TestMembers_Faults(t *testing.T) {
	w := peopled(t)
	ana, ctx := w.add("Annals", anas, organization.Owner), t.Context()
	add := func(org, email string, role organization.Role) error {
		_, err := w.AddMember(ctx, w.call, w.org(org), people.NewMember{Email: email, Role: role})
		return err
	}
	_, registered := w.RegisterPerson(ctx, w.call, "ana")
	cy := w.add("Annals", "cy@acme.example", organization.Member)
	own, acmes := w.projectIn("Annals"), w.projectIn("Acme")
	for name, c := range map[string]struct {
		err  error
		code string
	}{
		"add no address":              {add("Acme", "ana", organization.Owner), "invalid-request"},
		"register no address":         {registered, "invalid-request"},
		"add with no role":            {add("Acme", anas, "boss"), "invalid-request"},
		"add to no organization":      {add("Other", anas, organization.Owner), "not-found"},
		"add with another role":       {add("Annals", anas, organization.Admin), "conflict"},
		"remove the last owner":       {w.RemoveMember(ctx, w.call, w.org("Annals"), ana), "conflict"},
		"demote the last owner":       {w.SetMemberRole(ctx, w.call, w.org("Annals"), ana, organization.Admin), "conflict"},
		"set no role":                 {w.SetMemberRole(ctx, w.call, w.org("Annals"), ana, ""), "invalid-request"},
		"remove a foreign member":     {w.RemoveMember(ctx, w.call, w.org("Acme"), ana), "not-found"},
		"set a role of a foreigner":   {w.SetMemberRole(ctx, w.call, w.org("Acme"), ana, organization.Admin), "not-found"},
		"access of a foreigner":       {w.SetProjectAccess(ctx, w.call, w.org("Acme"), ana, acmes, organization.ReadAccess), "not-found"},
		"access to a foreign project": {w.SetProjectAccess(ctx, w.call, w.org("Annals"), cy, acmes, organization.ReadAccess), "not-found"},
		"access to no project":        {w.SetProjectAccess(ctx, w.call, w.org("Annals"), cy, uuid.New(), organization.ReadAccess), "not-found"},
		"access of an owner":          {w.SetProjectAccess(ctx, w.call, w.org("Annals"), ana, own, organization.NoAccess), "conflict"},
		"no access":                   {w.SetProjectAccess(ctx, w.call, w.org("Annals"), cy, own, "none"), "invalid-request"},
		"a reset of a foreigner":      {w.RecordReset(ctx, w.call, w.org("Acme"), ana, organization.ResetPassword), "not-found"},
		"a grant of a foreigner": {w.ApproveGrant(ctx, w.call, organization.GrantApproved{
			OrganizationID: w.org("Acme"), MemberID: ana,
		}), "not-found"},
		"a factor of nothing":        {w.SetSecondFactor(ctx, w.call, uuid.New(), true), "not-found"},
		"remove a person of no name": {w.RemovePerson(ctx, w.call, uuid.New()), "not-found"},
	} {
		t.Run(name, func(t *testing.T) { _ = wantFault(t, c.err, c.code) })
	}
	w.wantMembers("Annals", anas+" owner", "cy@acme.example member")
}

// What a member may do in a project is an event of the person who sets it.
func TestSetProjectAccess_OfAMember(t *testing.T) {
	w := peopled(t)
	cy, own := w.add("Annals", "cy@acme.example", organization.Member), w.projectIn("Annals")
	call := w.call
	call.Principal = auth.Principal{Kind: auth.Person, KeyID: cy, KeyName: auth.ConsoleName, OrganizationID: w.org("Annals")}
	for _, access := range []organization.Access{
		organization.ReadAccess, organization.ReadAccess, organization.WriteAccess, organization.NoAccess,
	} {
		runtest.Must(t, w.SetProjectAccess(t.Context(), call, w.org("Annals"), cy, own, access))
	}
	for _, err := range []error{
		w.SetSecondFactor(t.Context(), call, w.org("Annals"), true),
		w.RecordReset(t.Context(), call, w.org("Annals"), cy, organization.ResetPassword),
		w.ApproveGrant(t.Context(), call, organization.GrantApproved{OrganizationID: w.org("Annals"), MemberID: cy}),
		w.RevokeGrant(t.Context(), call, organization.GrantRevoked{OrganizationID: w.org("Annals"), MemberID: cy}),
		w.SetAccess(t.Context(), call, w.org("Annals"), cy, map[uuid.UUID]organization.Access{
			own: organization.NoAccess, w.projectIn("Annals"): organization.WriteAccess,
			w.projectIn("Annals"): organization.ReadAccess,
		}),
	} {
		runtest.Must(t, err)
	}
	facts := w.eventsOf("Annals")
	wantTypes(t, typesOf(facts), planSet, keySet, memberAdded, accessSet, accessSet, accessSet, factorSet, signInReset,
		"organization.grant-approved.v1", "organization.grant-revoked.v1", accessSet, accessSet)
	for _, f := range facts[3:] {
		if f.Details.Principal != "person:"+cy.String() {
			t.Errorf("%s is of %q", f.Type, f.Details.Principal)
		}
	}
	var state organization.State
	for _, f := range facts {
		state.Evolve(f.Event)
	}
	if len(state.Access[cy]) != 2 || !state.SecondFactor {
		t.Errorf("access %v, second factor %t", state.Access, state.SecondFactor)
	}
}

// The answer is the same whether the address is known to another organization or not.
func TestAddMember_TellsNothingOfOthers(t *testing.T) {
	w := peopled(t)
	for _, email := range []string{"bo@acme.example", "new@acme.example"} {
		id := w.add("Annals", email, organization.Member)
		if id == uuid.Nil || w.emailOf(id) != email {
			t.Errorf("%s is %s", email, id)
		}
	}
	wantTypes(t, typesOf(w.eventsOf("Annals")), planSet, keySet, memberAdded, memberAdded)
}

func TestRemoveMember_TheLastMembershipErasesThePerson(t *testing.T) {
	w := peopled(t)
	id := w.add("Annals", anas, organization.Member)
	w.add("Acme", anas, organization.Owner)
	w.at(w.call.ReceivedAt.Add(time.Hour))
	runtest.Must(t, w.RemoveMember(t.Context(), w.call, w.org("Annals"), id))
	if got := w.emailOf(id); got != anas {
		t.Fatalf("a member of another organization is %q", got)
	}
	runtest.Must(t, w.SetMemberRole(t.Context(), w.call, w.org("Acme"), id, organization.Admin))
	runtest.Must(t, w.RemoveMember(t.Context(), w.call, w.org("Acme"), id))
	if got := w.emailOf(id); got != "erased" {
		t.Errorf("without an organization the person is %q", got)
	}
	if _, found, err := w.FindPerson(t.Context(), anas); err != nil || found {
		t.Errorf("the erased person is found: %v, %v", found, err)
	}
	if again := w.add("Acme", anas, organization.Member); again == id || w.emailOf(again) != anas {
		t.Errorf("the address is of %s again, which is %q", again, w.emailOf(again))
	}
}

func TestRemovePerson_EndsEveryMembership(t *testing.T) {
	w := peopled(t)
	id := w.add("Annals", anas, organization.Owner)
	w.add("Acme", anas, organization.Member)
	w.at(w.call.ReceivedAt.Add(time.Hour))
	runtest.Must(t, w.RemovePerson(t.Context(), w.call, id))
	if got := w.emailOf(id); got != "erased" {
		t.Errorf("the person is %q", got)
	}
	if got := append(w.members("Annals"), w.members("Acme")...); !slices.Equal(got, []string{"bo@acme.example owner"}) {
		t.Errorf("members %v", got)
	}
	wantFault(t, w.RemovePerson(t.Context(), w.call, id), "not-found")
	if again := w.add("Acme", anas, organization.Member); again == id {
		t.Error("the address is of the erased person again")
	}
}

// A person joins an organization and is removed at once: a minute later the erasure is complete.
func TestRemovePerson_WhileAJoinMayBeUnderWay(t *testing.T) {
	w := peopled(t)
	id := w.add("Annals", anas, organization.Member)
	runtest.Must(t, w.RemovePerson(t.Context(), w.call, id))
	if got := append(w.members("Annals"), w.emailOf(id)); !slices.Equal(got, []string{"removed"}) {
		t.Errorf("members and person %v", got)
	}
	wantFault(t, errorOf(w.RegisterPerson(t.Context(), w.call, anas)), "service-unavailable")
	w.at(w.call.ReceivedAt.Add(time.Minute))
	if again := w.add("Annals", anas, organization.Member); again == id || w.emailOf(id) != "erased" {
		t.Errorf("%s is %q, and now %s", id, w.emailOf(id), again)
	}
}

// The owner asks for erasure before the organization is prepared, and stays out of it.
func TestRemovePerson_OwnerOfAnUnpreparedOrganization(t *testing.T) {
	w := peopled(t)
	victim := w.dying(t, 3) // the claim, the person, the registry
	victim.at(w.call.ReceivedAt)
	if _, err := victim.CreateOrganization(t.Context(), w.call,
		tenancy.NewOrganization{Name: "Late", Plan: metering.Flex, OwnerEmail: anas}); err == nil {
		t.Fatal("created without an answer of the store")
	}
	if got := w.settle(w.call.ReceivedAt.Add(2 * time.Hour)); !slices.Contains(got, anas) {
		t.Fatalf("alive are %v: the preparation needs its owner", got)
	}
	id, _, err := w.FindPerson(t.Context(), anas)
	runtest.Must(t, err)
	w.at(w.call.ReceivedAt.Add(2 * time.Hour))
	runtest.Must(t, w.RemovePerson(t.Context(), w.call, id))
	runtest.Must(t, w.PrepareOrganizations(t.Context(), w.call))
	if got := w.members("Late"); len(got) > 0 || w.emailOf(id) != "erased" {
		t.Errorf("members %v, the owner is %q", got, w.emailOf(id))
	}
}

// A process that stood still for long adds an erased person. The finisher ends that.
func TestSettlePerson_ErasedPersonWhoIsAMember(t *testing.T) {
	w := peopled(t)
	id := w.add("Annals", anas, organization.Member)
	w.at(w.call.ReceivedAt.Add(time.Hour))
	runtest.Must(t, w.RemovePerson(t.Context(), w.call, id))
	state := w.registry()
	o, _ := state.Organization("Annals")
	facts := w.eventsOf("Annals")
	late := organization.MemberAdded{OrganizationID: o.OrganizationID, MemberID: id, Role: organization.Owner}
	_, err := w.log.Append(t.Context(), stream.Name(stream.Organization, o.OrganizationID), facts[len(facts)-1].Revision,
		event.NewMeta("test", w.call.ReceivedAt), late)
	runtest.Must(t, err)
	erased, err := people.SettlePerson(t.Context(), w.log,
		work.Person{ID: id, Organizations: []uuid.UUID{o.OrganizationID}}, w.log.Now())
	if got := w.members("Annals"); err != nil || !erased || len(got) > 0 {
		t.Errorf("erased: %t, %v; members %v", erased, err, got)
	}
}

// wantNoAddress fails for each stored event that holds an address outside of the streams of people: in
// its data, its metadata or the name of its stream, in clear or as a plain SHA-256.
func wantNoAddress(t *testing.T, records []eventstore.Recorded, emails ...string) {
	t.Helper()
	inside := 0
	for _, email := range emails {
		for _, form := range []string{email, person.NormalEmail(email)} {
			sum := sha256.Sum256([]byte(form))
			local, _, _ := strings.Cut(form, "@")
			for _, text := range []string{
				form, local + "@", hex.EncodeToString(sum[:])[:16], base64.RawStdEncoding.EncodeToString(sum[:])[:16],
				base64.RawURLEncoding.EncodeToString(sum[:])[:16], string(sum[:]),
			} {
				for _, r := range records {
					stored := bytes.ToLower(slices.Concat([]byte(r.Stream), []byte("\n"), r.Data, []byte("\n"), r.Meta))
					if !bytes.Contains(stored, bytes.ToLower([]byte(text))) {
						continue
					}
					if stream.Category(r.Stream) != stream.Person {
						t.Errorf("%s of %s holds %q", r.Type, r.Stream, text)
					}
					inside++
				}
			}
		}
	}
	if inside == 0 {
		t.Error("no stream holds an address")
	}
}

func TestPeople_NoAddressInAnyOtherStream(t *testing.T) {
	w := peopled(t)
	id := w.add("Annals", anas, organization.Owner)
	w.add("Acme", anas, organization.Member)
	w.add("Annals", "cy@acme.example", organization.Owner)
	gone := w.add("Annals", "dee@acme.example", organization.Member)
	w.at(w.call.ReceivedAt.Add(time.Hour))
	for _, err := range []error{
		w.SetMemberRole(t.Context(), w.call, w.org("Acme"), id, organization.Admin),
		w.RemoveMember(t.Context(), w.call, w.org("Annals"), id),
		w.RemovePerson(t.Context(), w.call, gone),
	} {
		runtest.Must(t, err)
	}
	records, err := w.store.ReadAll(t.Context(), 0, 1<<20)
	runtest.Must(t, err)
	wantNoAddress(t, records, anas, "bo@acme.example", "cy@acme.example", "dee@acme.example")
}

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
	in := tenancy.NewOrganization{Name: name, Plan: metering.Flex, OwnerEmail: owner}
	runtest.Must(w.t, errorOf(w.CreateOrganization(w.t.Context(), w.call, in)))
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
	runtest.Must(w.t, err)
	return p.ID
}

func (w *fixture) add(org, email string, role organization.Role) uuid.UUID {
	w.t.Helper()
	id, err := w.AddMember(w.t.Context(), w.call, w.org(org), people.NewMember{Email: email, Role: role})
	runtest.Must(w.t, err)
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

func (w *fixture) wantMembers(org string, want ...string) {
	w.t.Helper()
	if got := w.members(org); !slices.Equal(got, want) {
		w.t.Errorf("members of %s are %v, want %v", org, got, want)
	}
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
	var all []work.Person
	of := func(id uuid.UUID) int { return slices.IndexFunc(all, func(p work.Person) bool { return p.ID == id }) }
	runtest.Must(w.t, logDirectory{w.log}.fold(w.t.Context(), func(f eventstore.DecodedEvent) {
		switch e := f.Event.(type) {
		case *person.AddressClaimed:
			if of(e.PersonID) < 0 {
				all = append(all, work.Person{ID: e.PersonID, ClaimedAt: e.ClaimedAt})
			}
			if p := &all[of(e.PersonID)]; !slices.Contains(p.Addresses, f.Stream) {
				p.Addresses = append(p.Addresses, f.Stream)
			}
		case *person.AddressReleased:
			p := &all[of(e.PersonID)]
			p.Addresses = slices.DeleteFunc(p.Addresses, func(a string) bool { return a == f.Stream })
		}
	}))
	return all
}

// settle settles everybody, as a finisher does, and returns the addresses of those who live.
func (w *fixture) settle(now time.Time) []string {
	w.t.Helper()
	var alive []string
	for _, p := range w.claims() {
		for range 2 { // a second run changes nothing
			runtest.Must(w.t, errorOf(people.SettlePerson(w.t.Context(), w.log, p, now)))
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
