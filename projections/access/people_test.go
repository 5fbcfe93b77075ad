package access_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/access"
)

func ownerOf(t *testing.T, q access.Queries, org string) string {
	t.Helper()
	o, ok, err := q.OrganizationByID(t.Context(), id(org))
	if err != nil || !ok {
		t.Fatalf("%s: %v, %v", org, ok, err)
	}
	return o.OwnerEmail
}

func TestQuery_OwnerOfAnOrganization(t *testing.T) {
	const ana, bo = "ana@a.example", "bo@a.example"
	for _, c := range []struct {
		name  string
		write func(*writer)
		want  string
	}{
		{"nobody ever", func(*writer) {}, ""},
		{"no owner", func(w *writer) { w.member("org 0", ana, organization.Admin) }, ""},
		{"one", func(w *writer) { w.member("org 0", ana, organization.Owner) }, ana},
		{"the newest of two", func(w *writer) {
			w.member("org 0", bo, organization.Owner)
			w.member("org 0", ana, organization.Member)
			w.setRole("org 0", ana, organization.Owner)
		}, ana},
		{"the one that stays", func(w *writer) {
			w.member("org 0", bo, organization.Owner)
			w.member("org 0", ana, organization.Owner)
			w.removeMember("org 0", ana)
		}, bo},
		{"the one that keeps the role", func(w *writer) {
			w.member("org 0", bo, organization.Owner)
			w.member("org 0", ana, organization.Owner)
			w.setRole("org 0", ana, organization.Admin)
		}, bo},
		{"one with a new address", func(w *writer) {
			w.member("org 0", ana, organization.Owner)
			w.changeAddress(ana, "new")
			w.leaveAddress(ana, ana)
		}, "new"},
		{"a removed person", func(w *writer) {
			w.member("org 0", ana, organization.Owner)
			w.removePerson(ana)
		}, person.RemovedName},
		{"a released person", func(w *writer) {
			w.member("org 0", ana, organization.Owner)
			w.removePerson(ana)
			w.removeMember("org 0", ana)
			w.release(ana)
		}, person.RemovedName},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &writer{}
			w.organization("org 0")
			w.person(ana)
			w.person(bo)
			c.write(w)
			if got := ownerOf(t, applied(t, w), "org 0"); got != c.want {
				t.Errorf("the owner is %q, want %q", got, c.want)
			}
		})
	}
}

func TestQuery_MembersOfOneOrganization(t *testing.T) {
	w := &writer{}
	for _, org := range []string{"org 0", "other", "empty"} {
		w.organization(org)
	}
	for _, email := range []string{"ana", "bo", "cy", "gone"} {
		w.person(email)
	}
	w.member("org 0", "bo", organization.Member)
	w.member("org 0", "ana", organization.Owner)
	w.member("org 0", "gone", organization.Admin)
	w.member("org 0", "cy", organization.Member)
	w.removeMember("org 0", "cy")
	w.member("other", "ana", organization.Member)
	w.member("other", "cy", organization.Owner)
	w.removePerson("gone")
	q := applied(t, w)
	for org, want := range map[string][]access.Member{
		"org 0": {
			{PersonID: id("bo"), Email: "bo", Role: organization.Member},
			{PersonID: id("ana"), Email: "ana", Role: organization.Owner},
			{PersonID: id("gone"), Email: person.RemovedName, Role: organization.Admin},
		},
		"other": {
			{PersonID: id("ana"), Email: "ana", Role: organization.Member},
			{PersonID: id("cy"), Email: "cy", Role: organization.Owner},
		},
		"empty": nil, "unknown": nil,
	} {
		got, err := q.Members(t.Context(), id(org))
		if err != nil {
			t.Fatal(err)
		}
		if len(got)+len(want) > 0 && !cmp.Equal(want, got) {
			t.Errorf("%s (-want +got):\n%s", org, cmp.Diff(want, got))
		}
	}
}

func TestQuery_PeopleToSettle(t *testing.T) {
	w := &writer{}
	w.organization("org 0")
	w.claim("claimed")
	for _, email := range []string{"member", "alone", "former", "removed", "erased", "erased member", "moving"} {
		w.person(email)
	}
	w.changeAddress("moving", "moved")
	for _, email := range []string{"member", "moving", "former", "removed", "erased", "erased member"} {
		w.member("org 0", email, organization.Member)
	}
	w.removeMember("org 0", "former")
	for _, email := range []string{"removed", "erased", "erased member"} {
		w.removePerson(email)
	}
	w.removeMember("org 0", "erased")
	w.release("erased")
	w.release("erased member")
	for _, to := range []string{"once moved", "twice moved"} {
		w.changeAddress("member", to)
	}
	w.leaveAddress("member", "member")
	w.leaveAddress("member", "once moved")
	q := applied(t, w)

	got := map[uuid.UUID]work.Person{}
	for after := uuid.Nil; ; {
		page, err := q.OpenPeople(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, p := range page {
			p.ClaimedAt = p.ClaimedAt.UTC()
			slices.Sort(p.Addresses)
			got[p.ID] = p
		}
		after = page[len(page)-1].ID
	}
	want := map[uuid.UUID]work.Person{}
	for _, email := range []string{"claimed", "alone", "former", "removed"} {
		want[id(email)] = work.Person{
			ID: id(email), Addresses: []string{addressOf(email)}, ClaimedAt: noon, Organizations: []uuid.UUID{},
		}
	}
	removed := want[id("removed")]
	removed.Organizations = []uuid.UUID{id("org 0")}
	want[id("removed")] = removed
	erased := id("erased member")
	want[erased] = work.Person{
		ID: erased, Addresses: []string{}, ClaimedAt: got[erased].ClaimedAt, Organizations: []uuid.UUID{id("org 0")},
	}
	want[id("moving")] = work.Person{
		ID: id("moving"), Addresses: slices.Sorted(slices.Values([]string{addressOf("moved"), addressOf("moving")})), ClaimedAt: noon,
		Organizations: []uuid.UUID{id("org 0")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("people (-want +got):\n%s", diff)
	}
	if n, err := q.RemovedPeople(t.Context()); err != nil || n != 1 {
		t.Errorf("%d removed people, %v", n, err)
	}
}

// The store has removed the events of an erased person's stream. A rebuild makes the same rows.
func TestProjector_WithoutTheStreamsOfErasedPeople(t *testing.T) {
	w := &writer{}
	w.organization("org 0")
	for _, email := range []string{"ana", "bo"} {
		w.person(email)
		w.member("org 0", email, organization.Owner)
	}
	w.changeAddress("ana", "new")
	w.leaveAddress("ana", "ana")
	w.removePerson("ana")
	w.removeMember("org 0", "ana")
	w.leaveAddress("ana", "new")
	var kept []eventstore.DecodedEvent
	for _, f := range w.Facts {
		if f.Stream != "person-"+id("ana").String() {
			kept = append(kept, f)
		}
	}
	if len(kept) != len(w.Facts)-4 {
		t.Fatalf("%d of %d events are left", len(kept), len(w.Facts))
	}
	db := pgtest.Database(t)
	projectiontest.Make(t, db, access.New())
	var all []map[string][]string
	for _, facts := range [][]eventstore.DecodedEvent{w.Facts, kept} {
		rows, err := projectiontest.Rows(t.Context(), db, access.New(), [][]eventstore.DecodedEvent{facts})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rows)
	}
	if diff := cmp.Diff(all[0], all[1]); diff != "" {
		t.Errorf("rows (-whole +erased):\n%s", diff)
	}
}
