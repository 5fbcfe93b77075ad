package commands_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/event"
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

// claims are the people that any address was claimed for.
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
		if claim, is := e.(*person.AddressClaimed); is {
			all = append(all, work.Person{ID: claim.PersonID, Address: r.Stream, ClaimedAt: claim.ClaimedAt})
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
	slices.Sort(alive)
	return alive
}

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
	if diff := cmp.Diff([]string{anas + " owner", "bo@acme.example owner"}, w.members("Acme")); diff != "" {
		t.Errorf("members of Acme (-want +got):\n%s", diff)
	}
	if other := w.add("Acme", "ana+a@acme.example", organization.Member); other == id {
		t.Error("another address is of the same person")
	}
}

func TestMembers_Faults(t *testing.T) {
	w := peopled(t)
	ana, ctx := w.add("Annals", anas, organization.Owner), t.Context()
	add := func(org, email string, role organization.Role) error {
		_, err := w.AddMember(ctx, w.call, w.org(org), commands.NewMember{Email: email, Role: role})
		return err
	}
	_, registered := w.RegisterPerson(ctx, w.call, "ana")
	for name, c := range map[string]struct {
		err  error
		code string
	}{
		"add no address":             {add("Acme", "ana", organization.Owner), "invalid-request"},
		"register no address":        {registered, "invalid-request"},
		"add with no role":           {add("Acme", anas, "boss"), "invalid-request"},
		"add to no organization":     {add("Other", anas, organization.Owner), "not-found"},
		"add with another role":      {add("Annals", anas, organization.Admin), "conflict"},
		"remove the last owner":      {w.RemoveMember(ctx, w.call, w.org("Annals"), ana), "conflict"},
		"demote the last owner":      {w.SetMemberRole(ctx, w.call, w.org("Annals"), ana, organization.Admin), "conflict"},
		"set no role":                {w.SetMemberRole(ctx, w.call, w.org("Annals"), ana, ""), "invalid-request"},
		"remove a foreign member":    {w.RemoveMember(ctx, w.call, w.org("Acme"), ana), "not-found"},
		"set a role of a foreigner":  {w.SetMemberRole(ctx, w.call, w.org("Acme"), ana, organization.Admin), "not-found"},
		"remove a person of no name": {w.RemovePerson(ctx, w.call, uuid.New()), "not-found"},
	} {
		t.Run(name, func(t *testing.T) { _ = wantFault(t, c.err, c.code) })
	}
	if diff := cmp.Diff([]string{anas + " owner"}, w.members("Annals")); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
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
	if err := w.RemoveMember(t.Context(), w.call, w.org("Annals"), id); err != nil {
		t.Fatal(err)
	}
	if got := w.emailOf(id); got != anas {
		t.Fatalf("a member of another organization is %q", got)
	}
	if err := w.SetMemberRole(t.Context(), w.call, w.org("Acme"), id, organization.Admin); err != nil {
		t.Fatal(err)
	}
	if err := w.RemoveMember(t.Context(), w.call, w.org("Acme"), id); err != nil {
		t.Fatal(err)
	}
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
	if err := w.RemovePerson(t.Context(), w.call, id); err != nil {
		t.Fatal(err)
	}
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
	if err := w.RemovePerson(t.Context(), w.call, id); err != nil {
		t.Fatal(err)
	}
	if got := append(w.members("Annals"), w.emailOf(id)); !slices.Equal(got, []string{"removed"}) {
		t.Errorf("members and person %v", got)
	}
	_, err := w.RegisterPerson(t.Context(), w.call, anas)
	wantFault(t, err, "service-unavailable")
	w.at(w.call.ReceivedAt.Add(time.Minute))
	if again := w.add("Annals", anas, organization.Member); again == id || w.emailOf(id) != "erased" {
		t.Errorf("%s is %q, and now %s", id, w.emailOf(id), again)
	}
}

// The owner asks for erasure before the organization is prepared, and stays out of it.
func TestRemovePerson_OwnerOfAnUnpreparedOrganization(t *testing.T) {
	w := peopled(t)
	d := &dying{Store: w.store}
	d.left.Store(3) // the claim, the person, the registry
	victim := fixtureOver(t, d)
	victim.at(w.call.ReceivedAt)
	if _, err := victim.CreateOrganization(t.Context(), w.call,
		commands.NewOrganization{Name: "Late", Plan: metering.Flex, OwnerEmail: anas}); err == nil {
		t.Fatal("created without an answer of the store")
	}
	if got := w.settle(w.call.ReceivedAt.Add(2 * time.Hour)); !slices.Contains(got, anas) {
		t.Fatalf("alive are %v: the preparation needs its owner", got)
	}
	id, _, err := w.FindPerson(t.Context(), anas)
	if err != nil {
		t.Fatal(err)
	}
	w.at(w.call.ReceivedAt.Add(2 * time.Hour))
	if err := w.RemovePerson(t.Context(), w.call, id); err != nil {
		t.Fatal(err)
	}
	if err := w.PrepareOrganizations(t.Context(), w.call); err != nil {
		t.Fatal(err)
	}
	if got := w.members("Late"); len(got) > 0 || w.emailOf(id) != "erased" {
		t.Errorf("members %v, the owner is %q", got, w.emailOf(id))
	}
}

// A process that stood still for long adds an erased person. The finisher ends that.
func TestSettlePerson_ErasedPersonWhoIsAMember(t *testing.T) {
	w := peopled(t)
	id := w.add("Annals", anas, organization.Member)
	w.at(w.call.ReceivedAt.Add(time.Hour))
	if err := w.RemovePerson(t.Context(), w.call, id); err != nil {
		t.Fatal(err)
	}
	state := w.registry()
	o, _ := state.Organization("Annals")
	facts := w.eventsOf("Annals")
	late := organization.MemberAdded{OrganizationID: o.OrganizationID, MemberID: id, Role: organization.Owner}
	_, err := w.log.Append(t.Context(), stream.Name(stream.Organization, o.OrganizationID), facts[len(facts)-1].Revision,
		event.NewMeta("test", w.log.Now()), late)
	if err != nil {
		t.Fatal(err)
	}
	erased, err := w.log.SettlePerson(t.Context(),
		work.Person{ID: id, Organizations: []uuid.UUID{o.OrganizationID}}, w.log.Now())
	if got := w.members("Annals"); err != nil || !erased || len(got) > 0 {
		t.Errorf("erased: %t, %v; members %v", erased, err, got)
	}
}

// The process dies before each write in turn. A finisher then leaves no address of a person who is a
// member nowhere, and no member who is erased; a repeat of the command completes it.
func TestPeople_CrashAfterEachAppend(t *testing.T) {
	type act func(*fixture, *fixture) error
	member := func(w *fixture) uuid.UUID {
		id, _, err := w.FindPerson(w.t.Context(), anas)
		if err != nil {
			w.t.Fatal(err)
		}
		return id
	}
	add := func(w, c *fixture) error {
		_, err := c.AddMember(w.t.Context(), w.call, w.org("Annals"), commands.NewMember{Email: anas, Role: organization.Admin})
		return err
	}
	for name, c := range map[string]struct {
		prepare func(*fixture)
		act     act
		// want are the members of Annals and Acme in the end.
		want []string
	}{
		"creation": {func(*fixture) {}, func(w, c *fixture) error {
			_, err := c.CreateOrganization(w.t.Context(), w.call,
				commands.NewOrganization{Name: "Late", Plan: metering.Flex, OwnerEmail: anas})
			if err != nil && strings.Contains(err.Error(), "already") {
				return w.PrepareOrganizations(w.t.Context(), w.call)
			}
			return err
		}, []string{anas + " owner"}},
		"a new member": {func(*fixture) {}, add, []string{anas + " admin"}},
		"a member of another": {func(w *fixture) { w.add("Acme", anas, organization.Member) }, add, []string{
			anas + " admin", anas + " member",
		}},
		"the end of a membership": {func(w *fixture) {
			w.add("Annals", anas, organization.Member)
			w.add("Acme", anas, organization.Member)
		}, func(w, c *fixture) error {
			return c.RemoveMember(w.t.Context(), w.call, w.org("Annals"), member(w))
		}, []string{anas + " member"}},
		"the end of the last membership": {func(w *fixture) {
			w.add("Annals", anas, organization.Owner)
			w.add("Annals", "cy@a.example", organization.Owner)
		}, func(w, c *fixture) error {
			return c.RemoveMember(w.t.Context(), w.call, w.org("Annals"), member(w))
		}, []string{"cy@a.example owner"}},
		"the end of a person": {func(w *fixture) {
			w.add("Annals", anas, organization.Owner)
			w.add("Acme", anas, organization.Member)
		}, func(w, c *fixture) error {
			return c.RemovePerson(w.t.Context(), w.call, member(w))
		}, nil},
	} {
		for survived := range int64(12) {
			t.Run(fmt.Sprintf("%s after %d appends", name, survived), func(t *testing.T) {
				w := peopled(t)
				c.prepare(w)
				d := &dying{Store: w.store}
				d.left.Store(survived)
				victim := fixtureOver(t, d)
				later := w.call.ReceivedAt.Add(2 * time.Hour)
				for _, f := range []*fixture{w, victim} {
					f.at(later)
				}
				err := c.act(w, victim)
				all := func() []string {
					list := w.members("Annals")
					list = append(list, w.members("Acme")...)
					state := w.registry()
					if _, ok := state.Organization("Late"); ok {
						list = append(list, w.members("Late")...)
					}
					return slices.DeleteFunc(list, func(m string) bool { return m == "bo@acme.example owner" })
				}
				if err == nil {
					// The finisher ends the memberships of a removed person, who is shown as such until then.
					got := slices.DeleteFunc(all(), func(m string) bool { return strings.HasPrefix(m, "removed ") })
					if !slices.Equal(got, c.want) {
						t.Fatalf("answered, and members are %v, want %v", got, c.want)
					}
				}
				alive := w.settle(later.Add(2 * time.Hour))
				w.at(later.Add(2 * time.Hour))
				if err := w.PrepareOrganizations(t.Context(), w.call); err != nil {
					t.Fatal(err)
				}
				for _, email := range alive {
					if email != "bo@acme.example" && !slices.ContainsFunc(all(), func(m string) bool { return strings.HasPrefix(m, email+" ") }) {
						t.Errorf("%s is kept, a member of nothing; members %v", email, all())
					}
				}
				for _, m := range all() {
					if strings.HasPrefix(m, "erased") || strings.HasPrefix(m, "removed") {
						t.Errorf("members %v", all())
					}
				}
				var gone bool
				if err := c.act(w, w); err != nil { // the removal was complete
					wantFault(t, err, "not-found")
					gone = true
				}
				w.settle(later.Add(4 * time.Hour))
				if got := all(); !slices.Equal(got, c.want) {
					t.Errorf("members after the repeat (refused: %t) are %v, want %v", gone, got, c.want)
				}
			})
		}
	}
}

// interrupted is a store that does something before its n-th write.
type interrupted struct {
	eventstore.Store
	n  int
	do func()
}

func (s *interrupted) before() {
	if s.n--; s.n == -1 {
		s.do()
	}
}

func (s *interrupted) Append(
	ctx context.Context, name string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	s.before()
	return s.Store.Append(ctx, name, expected, events)
}

func (s *interrupted) Tombstone(
	ctx context.Context, name string, expected eventstore.Revision,
) (eventstore.Position, error) {
	s.before()
	return s.Store.Tombstone(ctx, name, expected)
}

// One process removes the last membership of a person while another adds one: a person who was added is a
// member, whichever write the other one comes between.
func TestPeople_AdditionWhileTheLastMembershipEnds(t *testing.T) {
	for _, adds := range []bool{false, true} { // who is interrupted
		for n := range 5 {
			t.Run(fmt.Sprintf("addition is interrupted %t before write %d", adds, n), func(t *testing.T) {
				w := peopled(t)
				id := w.add("Annals", anas, organization.Member)
				later := w.call.ReceivedAt.Add(time.Hour)
				broken := &interrupted{Store: w.store, n: n}
				other := fixtureOver(t, broken)
				w.at(later)
				other.at(later)
				remove := func(c *fixture) {
					if err := c.RemoveMember(t.Context(), w.call, w.org("Annals"), id); err != nil {
						t.Error(err)
					}
					w.settle(later)
				}
				add := func(c *fixture) { c.add("Acme", anas, organization.Member) }
				if adds {
					broken.do = func() { remove(w) }
					add(other)
				} else {
					broken.do = func() { add(w) }
					remove(other)
				}
				if broken.n >= 0 {
					broken.do() // it made fewer writes
				}
				w.settle(later.Add(time.Hour))
				want := []string{anas + " member", "bo@acme.example owner"}
				if got := w.members("Acme"); !slices.Equal(got, want) {
					t.Errorf("members %v, want %v", got, want)
				}
			})
		}
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
		if err != nil {
			t.Fatal(err)
		}
	}
	records, err := w.store.ReadAll(t.Context(), 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	wantNoAddress(t, records, anas, "bo@acme.example", "cy@acme.example", "dee@acme.example")
}
