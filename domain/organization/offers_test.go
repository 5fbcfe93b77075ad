package organization_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/organization"
)

var offerLimits = organization.Limits{Members: 2, OpenOffers: 2, OffersPerHour: 3}

const week = 7 * 24 * time.Hour

func offered(id uuid.UUID, recipient string, at time.Time) organization.MemberOffered {
	return organization.MemberOffered{
		OrganizationID: org, OfferID: id, Recipient: recipient, Role: organization.Member,
		Access: map[uuid.UUID]organization.Access{second: organization.ReadAccess}, OfferedAt: at, ExpiresAt: at.Add(week),
	}
}

func offerEnded(id uuid.UUID, end organization.OfferEnd, at time.Time) organization.OfferEnded {
	return organization.OfferEnded{OrganizationID: org, OfferID: id, End: end, EndedAt: at}
}

func TestState_Offers(t *testing.T) {
	first, next, third := uuid.UUID{1}, uuid.UUID{2}, uuid.UUID{3}
	later := noon.Add(time.Minute)
	ana, bo := offered(first, "ana", noon), offered(next, "bo", noon)
	again, cy := offered(third, "ana", later), offered(third, "cy", later)
	accepted := offerEnded(first, organization.Accepted, later)
	accepted.MemberID = member
	withdrawn := offerEnded(first, organization.Withdrawn, later)
	declined := offerEnded(first, organization.Declined, later)
	expiry := noon.Add(week)
	afterHour, afterWeek := offered(third, "cy", noon.Add(time.Hour)), offered(third, "cy", expiry)
	expired := offerEnded(first, organization.Expired, expiry)
	guest := added(uuid.UUID{9}, organization.Member)
	joined := added(member, organization.Member)
	joined.AddedAt = later
	reads := accessSet(second, organization.ReadAccess)
	reads.SetAt = later
	plain, owner, left := added(member, organization.Member), added(second, organization.Owner), memberRemoved
	boss := ana
	boss.Role = organization.Admin
	admin := joined
	admin.Role = organization.Admin

	type events = []event.Event
	type decision func(*organization.State) ([]event.Event, error)
	offer := func(o organization.MemberOffered) decision {
		return func(s *organization.State) ([]event.Event, error) { return s.Offer(o, offerLimits) }
	}
	accept := func(at time.Time) decision {
		return func(s *organization.State) ([]event.Event, error) {
			return s.Accept(first, member, org, at, offerLimits)
		}
	}
	end := func(how organization.OfferEnd, at time.Time) decision {
		return func(s *organization.State) ([]event.Event, error) { return s.End(first, org, how, at) }
	}
	for _, c := range []struct {
		name   string
		given  []event.Event
		decide decision
		want   []event.Event
		code   string
	}{
		{"an offer", nil, offer(ana), events{ana}, ""},
		{"in the place of another", events{&ana}, offer(again), events{withdrawn, again}, ""},
		{"the most that are open", events{&ana}, offer(cy), events{cy}, ""},
		{"one more than may be open", events{&ana, &bo}, offer(cy), nil, "conflict"},
		{"in the place of another of the most", events{&ana, &bo}, offer(again), events{withdrawn, again}, ""},
		{"with others that have expired", events{&ana, &bo}, offer(afterWeek), events{afterWeek}, ""},
		{"the last of an hour", events{&ana, &withdrawn, &bo}, offer(again), events{again}, ""},
		{"one more than in an hour", events{&ana, &withdrawn, &ana, &withdrawn, &bo}, offer(again), nil, "too-many-offers"},
		{"an hour later", events{&ana, &withdrawn, &ana, &withdrawn, &bo}, offer(afterHour), events{afterHour}, ""},

		{"accept", events{&ana}, accept(later), events{accepted, joined, reads}, ""},
		{"accept the role of an admin", events{&boss}, accept(later), events{accepted, admin}, ""},
		{"accept as a member", events{&plain, &boss}, accept(later), events{accepted}, ""},
		{"accept again", events{&ana, &accepted, &joined}, accept(later), nil, ""},
		{"accept again after a removal", events{&ana, &accepted, &joined, &left}, accept(later), nil, "not-found"},
		{"accept nothing", nil, accept(later), nil, "not-found"},
		{"accept at the last moment", events{&bo, &ana}, accept(expiry.Add(-1)), events{
			func() event.Event { e := accepted; e.EndedAt = expiry.Add(-1); return e }(),
			func() event.Event { e := joined; e.AddedAt = expiry.Add(-1); return e }(),
			func() event.Event { e := reads; e.SetAt = expiry.Add(-1); return e }(),
		}, ""},
		{"accept an expired one", events{&ana}, accept(expiry), nil, "not-found"},
		{"accept a declined one", events{&ana, &declined}, accept(later), nil, "not-found"},
		{"accept a withdrawn one", events{&ana, &withdrawn}, accept(later), nil, "not-found"},
		{"accept as the last member", events{&owner, &ana}, accept(later), events{accepted, joined, reads}, ""},
		{"accept as one more member", events{&owner, &guest, &ana}, accept(later), nil, "conflict"},

		{"decline", events{&ana}, end(organization.Declined, later), events{declined}, ""},
		{"withdraw", events{&ana}, end(organization.Withdrawn, later), events{withdrawn}, ""},
		{"withdraw what was accepted", events{&ana, &accepted, &joined}, end(organization.Withdrawn, later), nil, "not-found"},
		{"expire too early", events{&ana}, end(organization.Expired, expiry.Add(-1)), nil, ""},
		{"expire", events{&ana}, end(organization.Expired, expiry), events{expired}, ""},
		{"expire what has ended", events{&ana, &declined}, end(organization.Expired, expiry), nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.decide(folded(c.given...))
			checkDecided(t, c.want, got, c.code, err)
		})
	}
}

func TestState_Offered(t *testing.T) {
	id := uuid.UUID{1}
	ana := offered(id, "ana", noon)
	accepted := offerEnded(id, organization.Accepted, noon)
	accepted.MemberID = member
	plain, left := added(member, organization.Member), memberRemoved
	for _, c := range []struct {
		name      string
		given     []event.Event
		recipient string
		at        time.Time
		want      bool
	}{
		{"open", []event.Event{&ana}, "ana", noon, true},
		{"to somebody else", []event.Event{&ana}, "bo", noon, false},
		{"expired", []event.Event{&ana}, "ana", noon.Add(week), false},
		{"never made", nil, "ana", noon, false},
		{"accepted", []event.Event{&ana, &accepted, &plain}, "ana", noon, true},
		{"accepted by somebody else", []event.Event{&ana, &accepted, &plain}, "bo", noon, false},
		{"accepted and left", []event.Event{&ana, &accepted, &plain, &left}, "ana", noon, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := folded(c.given...).Offered(id, c.recipient, c.at); got != c.want {
				t.Errorf("offered: %t", got)
			}
		})
	}
}
