package commands_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/eventstore"
)

// The process dies before each write in turn. A finisher then leaves no address of a person who is a
// member nowhere, and no member who is erased; a repeat of the command completes it.
func TestPeople_CrashAfterEachAppend(t *testing.T) {
	type act func(*fixture, *fixture) error
	member := func(w *fixture) (id uuid.UUID) {
		for _, email := range []string{anas, "ana@new.example"} {
			found, lives, err := w.FindPerson(w.t.Context(), email)
			if err != nil {
				w.t.Fatal(err)
			}
			if lives {
				id = found
			}
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
