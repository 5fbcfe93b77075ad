package access_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/projections/access"
)

func TestQuery_Memberships(t *testing.T) {
	type grants = map[uuid.UUID]organization.Access
	w := &writer{}
	w.organization("first")
	w.organization("second")
	w.plan("second", metering.Flex)
	w.prepared("second")
	w.secondFactor("second", true)
	w.secondFactor("first", true)
	w.secondFactor("first", false)
	for _, email := range []string{"ana", "bo", "cy", "alone", "gone"} {
		w.person(email)
	}
	w.claim("claimed")
	w.member("second", "ana", organization.Member)
	w.setAccess("second", "ana", "one", organization.ReadAccess)
	w.setAccess("second", "ana", "one", organization.WriteAccess)
	w.setAccess("second", "ana", "two", organization.ReadAccess)
	w.setAccess("second", "ana", "three", organization.ReadAccess)
	w.setAccess("second", "ana", "three", organization.NoAccess)
	w.member("first", "ana", organization.Owner)
	w.member("second", "bo", organization.Member)
	w.setAccess("second", "bo", "one", organization.WriteAccess)
	w.setRole("second", "bo", organization.Admin)
	w.setRole("second", "bo", organization.Member)
	w.setAccess("second", "bo", "two", organization.ReadAccess)
	w.member("first", "cy", organization.Member)
	w.setAccess("first", "cy", "one", organization.ReadAccess)
	w.removeMember("first", "cy")
	w.member("second", "gone", organization.Owner)
	w.removePerson("gone")
	q := applied(t, w)

	second := func(role organization.Role, projects grants) access.Membership {
		return access.Membership{
			Organization: id("second"), Name: "second", Plan: metering.Flex, Role: role, Prepared: true, SecondFactor: true,
			Access: projects,
		}
	}
	first := access.Membership{
		Organization: id("first"), Name: "first", Plan: metering.SelfHosted, Role: organization.Owner, First: true,
		Access: grants{},
	}
	for email, want := range map[string][]access.Membership{
		"ana": {first, second(organization.Member, grants{
			id("one"): organization.WriteAccess, id("two"): organization.ReadAccess,
		})},
		"bo":    {second(organization.Member, grants{id("two"): organization.ReadAccess})},
		"cy":    nil,
		"alone": nil,
	} {
		got, ok, err := q.Memberships(t.Context(), id(email))
		if err != nil || !ok {
			t.Fatalf("%s: %v, %v", email, ok, err)
		}
		if diff := cmp.Diff(access.Person{ID: id(email), Email: email, Memberships: want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", email, diff)
		}
	}
	for _, email := range []string{"gone", "claimed", "unknown"} {
		if got, ok, err := q.Memberships(t.Context(), id(email)); err != nil || ok {
			t.Errorf("%s: %v, %v, %v", email, got, ok, err)
		}
	}
}

// A membership is given to the address that the person had when the join began: a change of the address between that
// and the membership, or after it, gives nothing to the new one.
func TestQuery_MembershipsByTheAddressTheyWereGivenTo(t *testing.T) {
	w := &writer{}
	for _, org := range []string{"before", "between", "after", "again"} {
		w.organization(org)
	}
	w.person("ana")
	for _, org := range []string{"before", "between", "again"} {
		w.join(org, "ana")
	}
	for _, org := range []string{"before", "again"} {
		w.member(org, "ana", organization.Member)
	}
	w.changeAddress("ana", "new")
	w.member("between", "ana", organization.Member)
	w.join("after", "ana")
	w.member("after", "ana", organization.Member)
	w.removeMember("again", "ana")
	w.join("again", "ana")
	w.member("again", "ana", organization.Member)
	q := applied(t, w)
	p, ok, err := q.Memberships(t.Context(), id("ana"))
	if err != nil || !ok || p.Email != "new" {
		t.Fatalf("%+v, %v, %v", p, ok, err)
	}
	given := map[string]string{}
	for _, m := range p.Memberships {
		given[m.Name] = m.Given
	}
	want := map[string]string{"before": "ana", "between": "ana", "after": "new", "again": "new"}
	if diff := cmp.Diff(want, given); diff != "" {
		t.Errorf("given to (-want +got):\n%s", diff)
	}
}

func TestQuery_Names(t *testing.T) {
	w := &writer{}
	w.organization("org 0")
	w.project("org 0", "support", 1)
	w.key("support", "agent")
	w.person("ana")
	w.person("gone")
	w.removePerson("gone")
	q := applied(t, w)
	got, err := q.Names(t.Context(), []uuid.UUID{id("ana"), id("agent"), id("support"), id("gone"), id("unknown")})
	if err != nil {
		t.Fatal(err)
	}
	want := map[uuid.UUID]string{id("ana"): "ana", id("agent"): "agent", id("support"): "support"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
