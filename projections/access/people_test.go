package access_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/offer"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
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

const day = 24 * time.Hour

// address begins an offer of an organization to an address.
func (w *writer) address(org, name, email string) {
	w.Append(stream.Name(stream.Offer, id(name)), &offer.Addressed{
		OfferID: id(name), OrganizationID: id(org), Email: email, Address: addressOf(email), AddressedAt: noon,
	})
}

func (w *writer) offer(org, name, email string, life time.Duration) {
	w.address(org, name, email)
	w.of(org, &organization.MemberOffered{
		OrganizationID: id(org), OfferID: id(name), Role: organization.Admin, OfferedAt: noon, ExpiresAt: noon.Add(life),
	})
}

func (w *writer) endOffer(org, name string, end organization.OfferEnd) {
	w.of(org, &organization.OfferEnded{OrganizationID: id(org), OfferID: id(name), End: end, EndedAt: noon})
}

// tombstone ends the stream of an offer, as the store records it.
func (w *writer) tombstone(name string) {
	w.Append(eventstore.SystemStream, &eventstore.Tombstoned{Stream: stream.Name(stream.Offer, id(name))})
}

func offered(org, name, email string, life time.Duration) access.Offer {
	return access.Offer{
		ID: id(name), Organization: id(org), Name: org, Email: email, Role: organization.Admin, ExpiresAt: noon.Add(life),
	}
}

func TestQuery_Offers(t *testing.T) {
	w := &writer{}
	w.organization("org 0")
	w.organization("other")
	w.address("org 0", "never made", "ana")
	w.offer("org 0", "late", "ana", 2*day)
	w.offer("org 0", "soon", "bo", day)
	w.offer("other", "others", "ana", day)
	for name, end := range map[string]organization.OfferEnd{
		"declined": organization.Declined, "accepted": organization.Accepted, "withdrawn": organization.Withdrawn,
	} {
		w.offer("org 0", name, "ana", day)
		w.endOffer("org 0", name, end)
	}
	w.offer("org 0", "gone", "ana", day)
	w.endOffer("org 0", "gone", organization.Declined)
	w.tombstone("gone")
	q := applied(t, w)

	late, soon := offered("org 0", "late", "ana", 2*day), offered("org 0", "soon", "bo", day)
	others := offered("other", "others", "ana", day)
	of := func(org string) func(time.Time) ([]access.Offer, error) {
		return func(now time.Time) ([]access.Offer, error) { return q.Offers(t.Context(), id(org), now) }
	}
	to := func(address string) func(time.Time) ([]access.Offer, error) {
		return func(now time.Time) ([]access.Offer, error) { return q.OffersTo(t.Context(), address, now) }
	}
	for _, c := range []struct {
		name string
		list func(now time.Time) ([]access.Offer, error)
		now  time.Time
		want []access.Offer
	}{
		{"of an organization", of("org 0"), noon, []access.Offer{soon, late}},
		{"of an organization, a day later", of("org 0"), noon.Add(day), []access.Offer{late}},
		{"to an address", to(addressOf("ana")), noon.Add(day - 1), []access.Offer{others, late}},
		{"to nobody", to(addressOf("cy")), noon, nil},
		{"of no organization", of("unknown"), noon, nil},
	} {
		got, err := c.list(c.now)
		if err != nil {
			t.Fatal(err)
		}
		if len(got)+len(c.want) > 0 && !cmp.Equal(c.want, got) {
			t.Errorf("%s (-want +got):\n%s", c.name, cmp.Diff(c.want, got))
		}
	}
}

func TestQuery_OffersToSettle(t *testing.T) {
	w := &writer{}
	w.organization("org 0")
	w.address("org 0", "never made", "ana")
	w.offer("org 0", "late", "ana", 2*day)
	w.offer("org 0", "soon", "bo", day)
	w.offer("org 0", "declined", "ana", 2*day)
	w.endOffer("org 0", "declined", organization.Declined)
	q := applied(t, w)
	for now, want := range map[time.Time][]string{
		noon: {"never made", "declined"}, noon.Add(day): {"never made", "declined", "soon"},
	} {
		var got []work.Offer
		for after := uuid.Nil; ; {
			page, err := q.OpenOffers(t.Context(), now, after, 2)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			got, after = append(got, page...), page[len(page)-1].ID
		}
		wanted := map[uuid.UUID]bool{}
		for _, name := range want {
			wanted[id(name)] = true
		}
		for _, o := range got {
			if !wanted[o.ID] || o.Organization != id("org 0") || !o.AddressedAt.Equal(noon) {
				t.Errorf("at %s, %+v is to be settled", now, o)
			}
		}
		if len(got) != len(want) {
			t.Errorf("at %s, %d offers are to be settled, want %v", now, len(got), want)
		}
	}
}

// The store has removed the events of the stream of an offer. A rebuild makes the same rows.
func TestProjector_WithoutTheStreamsOfOffers(t *testing.T) {
	w := &writer{}
	w.organization("org 0")
	w.offer("org 0", "open", "bo", day)
	w.offer("org 0", "declined", "ana", day)
	w.endOffer("org 0", "declined", organization.Declined)
	w.tombstone("declined")
	gone := stream.Name(stream.Offer, id("declined"))
	var kept []eventstore.DecodedEvent
	for _, f := range w.Facts {
		if f.Stream != gone {
			kept = append(kept, f)
		}
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
	if diff := cmp.Diff(all[0], all[1]); diff != "" || len(all[0]["offers"]) != 1 {
		t.Errorf("rows (-whole +erased):\n%s", diff)
	}
}

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

func of(org, email string, at time.Time) visit.Visit {
	return visit.Visit{OrganizationID: id(org), PersonID: id(email), Network: "192.0.2.1", Browser: "Lynx", VisitedAt: at}
}

func visitsOf(org, email string, at time.Time) string {
	person := uuid.Nil
	if email != "" {
		person = id(email)
	}
	return stream.VisitsName(id(org), person, at.Format("2006-01"))
}

func (w *writer) signIn(org, email string, at time.Time) {
	w.Append(visitsOf(org, email, at), &visit.SignedIn{Visit: of(org, email, at), Way: visit.Password})
}

func (w *writer) export(org, email, slug string, at time.Time) {
	w.Append(visitsOf(org, email, at),
		&visit.Exported{Visit: of(org, email, at), ProjectID: id(slug), What: "data-points", Format: "csv"})
}

func (w *writer) operatorRead(org string, at time.Time) {
	w.Append(visitsOf(org, "", at), &visit.OperatorRead{OrganizationID: id(org), Command: "log", VisitedAt: at})
}

// The streams of removed people are listed to end, and those of months that are too old; rows go with their stream.
func TestVisits_End(t *testing.T) {
	w := &writer{}
	w.organization("org")
	w.of("org", &organization.VisitsKeptSet{OrganizationID: id("org"), Days: 30, SetAt: noon})
	for _, email := range []string{"ana@example.com", "ben@example.com", "cy@example.com"} {
		w.person(email)
		w.signIn("org", email, noon)
		w.signIn("org", email, noon.AddDate(0, 1, 0))
	}
	w.operatorRead("org", noon)
	w.removePerson("ben@example.com")
	w.Append(eventstore.SystemStream, &eventstore.Tombstoned{Stream: visitsOf("org", "cy@example.com", noon)})
	q := applied(t, w)
	ended := func(now time.Time) (list []string) {
		t.Helper()
		for after := ""; ; {
			page, err := q.EndedVisits(t.Context(), now, after, 2)
			runtest.Must(t, err)
			if len(page) == 0 {
				return list
			}
			for _, v := range page {
				person, _ := stream.Visitor(v.Stream)
				if diff := cmp.Diff(work.Visits{Stream: v.Stream, Organization: id("org"), Person: person}, v); diff != "" {
					t.Error(diff)
				}
				list = append(list, v.Stream)
			}
			after = page[len(page)-1].Stream
		}
	}
	december := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	removed := []string{
		visitsOf("org", "ben@example.com", noon), visitsOf("org", "ben@example.com", noon.AddDate(0, 1, 0)),
	}
	old := append(slices.Clone(removed), visitsOf("org", "ana@example.com", noon), visitsOf("org", "", noon))
	slices.Sort(removed)
	slices.Sort(old)
	if diff := cmp.Diff(removed, ended(december.AddDate(0, 0, 30).Add(-time.Second))); diff != "" {
		t.Errorf("before the end: %s", diff)
	}
	if diff := cmp.Diff(old, ended(december.AddDate(0, 0, 30))); diff != "" {
		t.Errorf("after the end: %s", diff)
	}
	if diff := cmp.Diff(old, ended(december.AddDate(0, 0, 40))); diff != "" {
		t.Errorf("with a stream that has ended: %s", diff)
	}
}
