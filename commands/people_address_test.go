package commands_test

import (
	"context"
	"fmt"
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
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

func TestChangeAddress_OfAMember(t *testing.T) {
	const newer = "ana@new.example"
	w := peopled(t)
	id := w.add("Annals", anas, organization.Owner)
	for _, email := range []string{newer, newer, "Ana@New.example", newer} {
		runtest.Must(t, w.ChangeAddress(t.Context(), w.call, id, email))
		w.wantMembers("Annals", email+" owner")
	}
	for email, want := range map[string]bool{anas: false, newer: true} {
		if got, found, err := w.FindPerson(t.Context(), email); err != nil || found != want || found && got != id {
			t.Errorf("%s is %s, %v, %v", email, got, found, err)
		}
	}
	if other := w.add("Acme", anas, organization.Member); other == id {
		t.Error("the address of before still is of the person")
	}
	if got := w.add("Acme", newer, organization.Member); got != id {
		t.Errorf("the new address is of %s", got)
	}
	w.settle(w.call.ReceivedAt.Add(time.Hour))
	records, err := w.store.ReadAll(t.Context(), 0, 1<<20)
	runtest.Must(t, err)
	wantNoAddress(t, records, anas, newer)
}

func TestChangeAddress_BackAndForth(t *testing.T) {
	w := peopled(t)
	id := w.add("Annals", anas, organization.Owner)
	for _, email := range []string{"ana@new.example", anas, "ana@new.example", anas} {
		runtest.Must(t, w.ChangeAddress(t.Context(), w.call, id, email))
	}
	w.settle(w.call.ReceivedAt.Add(time.Hour))
	w.wantMembers("Annals", anas+" owner")
}

func TestChangeAddress_Faults(t *testing.T) {
	w := peopled(t)
	id := w.add("Annals", anas, organization.Member)
	gone := w.add("Annals", "gone@acme.example", organization.Member)
	w.at(w.call.ReceivedAt.Add(time.Hour))
	runtest.Must(t, w.RemovePerson(t.Context(), w.call, gone))
	for name, c := range map[string]struct {
		err  error
		code string
	}{
		"no address":                   {w.ChangeAddress(t.Context(), w.call, id, "ana"), "invalid-request"},
		"the address of another":       {w.ChangeAddress(t.Context(), w.call, id, "BO@acme.example"), "conflict"},
		"of an erased person":          {w.ChangeAddress(t.Context(), w.call, gone, "new@acme.example"), "not-found"},
		"of nobody":                    {w.ChangeAddress(t.Context(), w.call, uuid.New(), "new@acme.example"), "not-found"},
		"the address of an erased one": {w.ChangeAddress(t.Context(), w.call, id, "gone@acme.example"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.code != "" || c.err != nil {
				_ = wantFault(t, c.err, c.code)
			}
		})
	}
	w.settle(w.call.ReceivedAt.Add(2 * time.Hour))
}

// The process dies before each write in turn. A finisher then leaves no address of a person who is a
// member nowhere, and no member who is erased; a repeat of the command completes it.
func TestPeople_CrashAfterEachAppend(t *testing.T) {
	type act func(*fixture, *fixture) error
	member := func(w *fixture) (id uuid.UUID) {
		for _, email := range []string{anas, "ana@new.example"} {
			found, lives, err := w.FindPerson(w.t.Context(), email)
			runtest.Must(w.t, err)
			if lives {
				id = found
			}
		}
		return id
	}
	add := func(w, c *fixture) error {
		_, err := c.AddMember(w.t.Context(), w.call, w.org("Annals"), people.NewMember{Email: anas, Role: organization.Admin})
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
				tenancy.NewOrganization{Name: "Late", Plan: metering.Flex, OwnerEmail: anas})
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
		"a change of an address": {func(w *fixture) {
			w.add("Annals", anas, organization.Owner)
		}, func(w, c *fixture) error {
			return c.ChangeAddress(w.t.Context(), w.call, member(w), "ana@new.example")
		}, []string{"ana@new.example owner"}},
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
				victim := w.dying(t, survived)
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
				runtest.Must(t, w.PrepareOrganizations(t.Context(), w.call))
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
				w.wantMembers("Acme", want...)
			})
		}
	}
}

const (
	kim    = "kim@acme.example"
	kelvin = "\u212aim@acme.example" // compared as kim's before
	marta  = "MÄRTA@acme.example"
)

// stored makes a member of Annals whose address is claimed as versions did that compared by the lower case of Unicode.
func (w *fixture) stored(email string) uuid.UUID {
	w.t.Helper()
	id := w.add("Annals", "member"+uuid.NewString()+"@acme.example", organization.Member)
	forms := person.Forms(email)
	name, err := w.log.Namespaces.AddressName(forms[len(forms)-1])
	runtest.Must(w.t, err)
	claims := w.claims()
	given := claims[slices.IndexFunc(claims, func(p work.Person) bool { return p.ID == id })].Addresses[0]
	persons := stream.Name(stream.Person, id)
	events, err := w.store.Read(w.t.Context(), persons, 0, eventstore.Forwards, 100)
	runtest.Must(w.t, err)
	meta := event.NewMeta("test", w.call.ReceivedAt)
	for _, c := range []struct {
		stream string
		at     eventstore.Revision
		event  event.Event
	}{
		{name, eventstore.NoStream, person.AddressClaimed{PersonID: id, ClaimedAt: w.call.ReceivedAt}},
		{persons, events[len(events)-1].Revision, person.AddressChanged{PersonID: id, Email: email, ChangedAt: w.call.ReceivedAt}},
		{given, 0, person.AddressReleased{PersonID: id, ReleasedAt: w.call.ReceivedAt}},
	} {
		runtest.Must(w.t, errorOf(w.log.Append(w.t.Context(), c.stream, c.at, meta, c.event)))
	}
	return id
}

func (w *fixture) wantFound(email string, want uuid.UUID) {
	w.t.Helper()
	id, found, err := w.FindPerson(w.t.Context(), email)
	if err != nil || found != (want != uuid.Nil) || id != want {
		w.t.Errorf("%q is of %s, %t, %v, want %s", email, id, found, err, want)
	}
}

// A Kelvin sign is no k: two persons have the two addresses.
func TestPeople_LettersThatOnlyUnicodeFolds(t *testing.T) {
	w := peopled(t)
	first := w.add("Annals", kim, organization.Member)
	w.wantFound(kelvin, uuid.Nil)
	second := w.add("Annals", kelvin, organization.Member)
	if first == second {
		t.Error("one person has both addresses")
	}
	w.wantFound(kim, first)
	w.wantFound("KIM@ACME.example", first)
	w.wantFound(kelvin, second)
	err := w.ChangeAddress(t.Context(), w.call, second, kim)
	wantFault(t, err, "conflict")
}

// Who was stored under the former form of the address is found by it, and is added as the same person.
func TestPeople_StoredUnderTheFormerForm(t *testing.T) {
	w := peopled(t)
	id := w.stored(marta)
	w.wantFound(marta, id)
	w.wantFound("mÄrta@ACME.example", id)
	w.wantFound("märta@acme.example", uuid.Nil) // another mailbox
	if got := w.add("Acme", marta, organization.Member); got != id {
		t.Errorf("added %s, want %s", got, id)
	}
	for _, p := range w.claims() { // the finisher leaves the claim
		runtest.Must(t, errorOf(people.SettlePerson(t.Context(), w.log, p, w.call.ReceivedAt.Add(time.Hour))))
	}
	w.wantFound(marta, id)
	other := w.add("Acme", "cy@acme.example", organization.Member)
	wantFault(t, w.ChangeAddress(t.Context(), w.call, other, marta), "conflict")
	// A change of the address leaves nothing under the former form.
	runtest.Must(t, w.ChangeAddress(t.Context(), w.call, id, "marta@acme.example"))
	w.wantFound(marta, uuid.Nil)
	w.wantFound("marta@acme.example", id)
	w.settle(w.call.ReceivedAt.Add(2 * time.Hour))
}

// The holder of the address that has the name now takes it, and the person of before keeps the other address.
func TestPeople_FormerNameOfAnotherAddress(t *testing.T) {
	for name, take := range map[string]func(w *fixture) uuid.UUID{
		"a new person": func(w *fixture) uuid.UUID { return w.add("Acme", kim, organization.Member) },
		"a change": func(w *fixture) uuid.UUID {
			id := w.add("Acme", "cy@acme.example", organization.Member)
			runtest.Must(w.t, w.ChangeAddress(w.t.Context(), w.call, id, kim))
			return id
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := peopled(t)
			before := w.stored(kelvin)
			w.wantFound(kelvin, before)
			w.wantFound(kim, uuid.Nil)
			id := take(w)
			w.wantFound(kim, id)
			w.wantFound(kelvin, before)
			w.settle(w.call.ReceivedAt.Add(2 * time.Hour))
			w.wantFound(kim, id)
			w.wantFound(kelvin, before)
		})
	}
}
