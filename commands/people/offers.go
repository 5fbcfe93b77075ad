package people

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/offer"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/work"
)

// An offer takes appends on two streams, in this order:
//
//  1. The stream of the offer holds the address. A crash here leaves an address that is offered nothing: the finisher
//     removes it after a minute.
//  2. The stream of the organization offers the membership, which is the commit. An offer to the same address that is
//     open ends with it.
//
// An acceptance joins the person of the address as AddMember does (see people.go), except that the end of the offer,
// the membership and its accesses are one append. The stream of an offer that has ended is tombstoned: the address is
// left at the person, or nowhere. Neither step asks who is registered, so that the answer and its time do not show
// it.

// NewOffer is a membership to offer to an address.
type NewOffer struct {
	Email string
	Role  organization.Role
	// Access is what a member with the role Member may do in projects, none for other roles.
	Access map[uuid.UUID]organization.Access
}

// Offer is an offer that was made.
type Offer struct {
	ID        uuid.UUID
	ExpiresAt time.Time
}

// OfferMembership offers a membership to an address for a time. An open offer of the organization to the address ends
// as withdrawn. It does not ask who has the address. Its faults are invalid-request, not-found, conflict for too many
// open offers, too-many-offers within an hour, and service-unavailable.
func (s *Service) OfferMembership(
	ctx context.Context, call engine.Call, organizationID uuid.UUID, in NewOffer, life time.Duration,
) (Offer, error) {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	made, addressed, err := s.newOffer(decideCtx, call, organizationID, in, life)
	if err != nil {
		return Offer{}, err
	}
	name := stream.Name(stream.Offer, made.OfferID)
	if _, err := s.journal.Append(decideCtx, name, eventstore.NoStream, call.NewMeta(), addressed); err != nil {
		return Offer{}, err
	}
	var ended []uuid.UUID
	err = s.changeMembers(decideCtx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		events, err := state.Offer(made, s.memberLimits)
		ended = nil
		for _, e := range events {
			if e, is := e.(organization.OfferEnded); is {
				ended = append(ended, e.OfferID)
			}
		}
		return events, err
	})
	if err != nil {
		ended = append(ended, made.OfferID)
	}
	for _, id := range ended {
		s.settleOfferOrLeave(ctx, work.Offer{ID: id, Organization: organizationID})
	}
	return Offer{ID: made.OfferID, ExpiresAt: made.ExpiresAt}, err
}

// newOffer returns the events of an offer that may be made.
func (s *Service) newOffer(
	ctx context.Context, call engine.Call, organizationID uuid.UUID, in NewOffer, life time.Duration,
) (made organization.MemberOffered, addressed offer.Addressed, err error) {
	if err := checkRole(in.Role); err != nil {
		return made, addressed, err
	}
	if !person.ValidEmail(in.Email) {
		return made, addressed,
			fault.New(fault.Invalid, fault.CodeInvalidRequest, "%q is no email address", in.Email)
	}
	if err := s.checkRegistered(ctx, organizationID); err != nil {
		return made, addressed, err
	}
	if in.Role != organization.Member {
		in.Access = nil
	}
	if err := s.checkAccess(ctx, organizationID, in.Access); err != nil {
		return made, addressed, err
	}
	email := person.NormalEmail(in.Email)
	address, err := s.journal.Namespaces.AddressName(email)
	if err != nil {
		return made, addressed, err
	}
	recipient, err := s.journal.Namespaces.Recipient(organizationID, email)
	if err != nil {
		return made, addressed, err
	}
	id := uuid.New()
	made = organization.MemberOffered{
		OrganizationID: organizationID, OfferID: id, Recipient: recipient, Role: in.Role, Access: in.Access,
		OfferedAt: call.ReceivedAt, ExpiresAt: call.ReceivedAt.Add(life),
	}
	addressed = offer.Addressed{
		OfferID: id, OrganizationID: organizationID, Email: in.Email, Address: address, AddressedAt: call.ReceivedAt,
	}
	return made, addressed, nil
}

// AcceptOffer makes the person of an address a member by an offer to it, and registers the person if there is none. Who
// calls it has proved that address: to the deployment, or by a link of the offer to the organization. It may be
// repeated. Its faults are not-found for an offer that is not open or not to the address, conflict for too many
// members, and service-unavailable.
func (s *Service) AcceptOffer(
	ctx context.Context, call engine.Call, organizationID, offerID uuid.UUID, email string,
) (member uuid.UUID, err error) {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	recipient, err := s.journal.Namespaces.Recipient(organizationID, person.NormalEmail(email))
	if err != nil {
		return uuid.Nil, err
	}
	// What is not offered must not register anybody.
	state, err := engine.ReadOrganization(decideCtx, s.journal, organizationID)
	if err == nil && !state.Offered(offerID, recipient, call.ReceivedAt) {
		err = organization.NoOffer()
	}
	if err != nil {
		return uuid.Nil, err
	}
	member, _, err = EnterPerson(decideCtx, s.journal, call, email, Joining(organizationID, email, s.journal.Now()))
	if err != nil {
		return uuid.Nil, err
	}
	err = s.changeMembers(decideCtx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		return state.Accept(offerID, member, organizationID, call.ReceivedAt, s.memberLimits)
	})
	if err == nil {
		s.settleOfferOrLeave(ctx, work.Offer{ID: offerID, Organization: organizationID})
	}
	return member, err
}

// EndOffer ends an open offer as declined, by the person of its address, or as withdrawn, by the organization. The
// fault is not-found for one that is not open.
func (s *Service) EndOffer(
	ctx context.Context, call engine.Call, organizationID, offerID uuid.UUID, end organization.OfferEnd,
) error {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	err := s.changeMembers(decideCtx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		return state.End(offerID, organizationID, end, call.ReceivedAt)
	})
	if err == nil {
		s.settleOfferOrLeave(ctx, work.Offer{ID: offerID, Organization: organizationID})
	}
	return err
}

// AddressName is the keyed hash under which what is offered to an address is found: the name of its stream. Offers are
// under no former form of an address (person.Forms), which may be that of somebody else.
func (s *Service) AddressName(email string) (string, error) {
	return s.journal.Namespaces.AddressName(person.NormalEmail(email))
}

// settleOfferOrLeave settles an offer, or leaves that to the finisher.
func (s *Service) settleOfferOrLeave(ctx context.Context, o work.Offer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.FanOutTimeout)
	defer cancel()
	if _, err := SettleOffer(ctx, s.journal, o, s.journal.Now()); err != nil {
		s.journal.Logger.WarnContext(ctx, "removal of an address failed, the finisher will retry", "offer", o.ID, "err", err)
	}
}

// abandonedTime is how long the address of an offer is left to the command that makes the offer. None takes as long.
const abandonedTime = time.Minute

// SettleOffer ends an offer that has expired, and tombstones the stream of one that has ended or was never made.
// erased reports whether it is tombstoned. An open offer is left alone.
func SettleOffer(ctx context.Context, l *engine.Journal, o work.Offer, now time.Time) (erased bool, err error) {
	if now.Sub(o.AddressedAt) < abandonedTime {
		return false, nil
	}
	open := false
	meta := func() event.Meta { return event.NewMeta("finisher", now).Of(o.ID) }
	_, err = l.DecideOrganization(ctx, o.Organization, meta, func(state organization.State) ([]event.Event, error) {
		events, err := state.End(o.ID, o.Organization, organization.Expired, now)
		_, is := state.Offers[o.ID]
		open = is && len(events) == 0
		return events, err
	})
	if err != nil || open {
		return false, err
	}
	err = erasure.On(l, func() time.Time { return now }).EraseOffer(ctx, o.Organization, o.ID)
	return err == nil, err
}
