package organization

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
)

// MemberOffered offers a membership to an address, which only the stream of the offer holds. It gives nothing until
// somebody accepts it who has proved that address.
type MemberOffered struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	OfferID        uuid.UUID `json:"offerId"`
	// Recipient is a keyed hash of the address within the organization: an address has one open offer of it.
	Recipient string               `json:"recipient"`
	Role      Role                 `json:"role"`
	Access    map[uuid.UUID]Access `json:"access,omitempty"`
	OfferedAt time.Time            `json:"offeredAt"`
	ExpiresAt time.Time            `json:"expiresAt"`
}

func (MemberOffered) EventType() string { return "organization.member-offered.v1" }

// OfferEnd is how an offer ended.
type OfferEnd string

// The ends of offers.
const (
	Accepted  OfferEnd = "accepted"
	Declined  OfferEnd = "declined"
	Withdrawn OfferEnd = "withdrawn"
	Expired   OfferEnd = "expired"
)

// OfferEnded ends an offer. MemberID is who accepted it, zero for another end.
type OfferEnded struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	OfferID        uuid.UUID `json:"offerId"`
	End            OfferEnd  `json:"end"`
	MemberID       uuid.UUID `json:"memberId,omitzero"`
	EndedAt        time.Time `json:"endedAt"`
}

func (OfferEnded) EventType() string { return "organization.offer-ended.v1" }

// Limits bound the members and the offers of an organization.
type Limits struct {
	// Members is the most members, OpenOffers the most offers that are open at once, OffersPerHour the most that are made
	// within an hour.
	Members, OpenOffers, OffersPerHour int
}

// DefaultLimits are those without a setting.
func DefaultLimits() Limits { return Limits{Members: 1000, OpenOffers: 200, OffersPerHour: 100} }

// Offer is what decisions need of an open offer.
type Offer struct {
	Recipient string
	Role      Role
	Access    map[uuid.UUID]Access
	ExpiresAt time.Time
}

// acceptance is who accepted an offer, and its recipient.
type acceptance struct {
	member    uuid.UUID
	recipient string
}

// offerWindow is the time in which offers are counted for Limits.OffersPerHour.
const offerWindow = time.Hour

func (s *State) evolveOffer(e event.Event) {
	switch e := e.(type) {
	case *MemberOffered:
		if s.Offers == nil {
			s.Offers = make(map[uuid.UUID]Offer)
		}
		s.Offers[e.OfferID] = Offer{Recipient: e.Recipient, Role: e.Role, Access: e.Access, ExpiresAt: e.ExpiresAt}
		s.offered = append(since(s.offered, e.OfferedAt.Add(-offerWindow)), e.OfferedAt)
	case *OfferEnded:
		recipient := s.Offers[e.OfferID].Recipient
		delete(s.Offers, e.OfferID)
		if e.End == Accepted {
			if s.accepted == nil {
				s.accepted = make(map[uuid.UUID]acceptance)
			}
			s.accepted[e.OfferID] = acceptance{e.MemberID, recipient}
		}
	}
}

// since returns the times after another one.
func since(times []time.Time, after time.Time) (left []time.Time) {
	for _, at := range times {
		if at.After(after) {
			left = append(left, at)
		}
	}
	return left
}

// Offer makes an offer, in the place of an open one to the same address. Its faults are conflict for too many open
// offers, and limit-reached for too many within an hour.
func (s *State) Offer(o MemberOffered, limits Limits) ([]event.Event, error) {
	if made := len(since(s.offered, o.OfferedAt.Add(-offerWindow))); made >= limits.OffersPerHour {
		return nil, fault.New(fault.LimitReached, "too-many-offers",
			"an organization makes at most %d offers an hour; try again later", limits.OffersPerHour)
	}
	var events []event.Event
	open := 0
	for id, other := range s.Offers {
		switch {
		case other.Recipient == o.Recipient:
			events = append(events, ended(id, o.OrganizationID, Withdrawn, o.OfferedAt))
		case o.OfferedAt.Before(other.ExpiresAt):
			open++
		}
	}
	if open >= limits.OpenOffers {
		return nil, fault.New(fault.Conflict, fault.CodeConflict,
			"an organization has at most %d open offers; withdraw one first", limits.OpenOffers)
	}
	return append(events, o), nil
}

func ended(id, organization uuid.UUID, end OfferEnd, at time.Time) OfferEnded {
	return OfferEnded{OrganizationID: organization, OfferID: id, End: end, EndedAt: at}
}

// Offered reports whether an offer to a recipient is open, or was accepted by somebody who is a member.
func (s *State) Offered(id uuid.UUID, recipient string, at time.Time) bool {
	if by, is := s.accepted[id]; is {
		_, isMember := s.Members[by.member]
		return isMember && by.recipient == recipient
	}
	open, is := s.Offers[id]
	return is && open.Recipient == recipient && at.Before(open.ExpiresAt)
}

// Accept makes a person a member by an offer, with the role and the accesses that it names. Somebody who is a member
// keeps the role. It returns nothing for a member who accepted the offer before. Its faults are not-found for an offer
// that is not open, and conflict for too many members.
func (s *State) Accept(id, member, organization uuid.UUID, at time.Time, limits Limits) ([]event.Event, error) {
	_, isMember := s.Members[member]
	if by, is := s.accepted[id]; is && by.member == member && isMember {
		return nil, nil
	}
	open, is := s.Offers[id]
	if !is || !at.Before(open.ExpiresAt) {
		return nil, NoOffer()
	}
	end := ended(id, organization, Accepted, at)
	end.MemberID = member
	events := []event.Event{end}
	if isMember {
		return events, nil
	}
	added, err := s.Add(MemberAdded{OrganizationID: organization, MemberID: member, Role: open.Role, AddedAt: at}, limits)
	if err != nil {
		return nil, err
	}
	return append(append(events, added...), open.accesses(organization, member, at)...), nil
}

// End ends an offer that is open in another way than by its acceptance. It returns nothing for one that has expired
// or has ended, if the end is Expired. Its fault is not-found.
func (s *State) End(id, organization uuid.UUID, end OfferEnd, at time.Time) ([]event.Event, error) {
	open, is := s.Offers[id]
	switch {
	case end == Expired && (!is || at.Before(open.ExpiresAt)):
		return nil, nil
	case !is:
		return nil, NoOffer()
	default:
		return []event.Event{ended(id, organization, end, at)}, nil
	}
}

// accesses are the events that give a new member the accesses of an offer.
func (o Offer) accesses(organization, member uuid.UUID, at time.Time) (events []event.Event) {
	if o.Role != Member {
		return nil
	}
	order := slices.SortedFunc(maps.Keys(o.Access), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	for _, project := range order {
		events = append(events, ProjectAccessSet{
			OrganizationID: organization, MemberID: member, ProjectID: project, Access: o.Access[project], SetAt: at,
		})
	}
	return events
}

// NoOffer is the fault of an offer that is not open.
func NoOffer() error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "there is no such offer: it was withdrawn, used, or has expired")
}
