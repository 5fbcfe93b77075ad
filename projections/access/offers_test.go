package access_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/offer"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/access"
)

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
