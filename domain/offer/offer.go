// Package offer is the address to which an organization offers a membership.
//
// The stream of an offer is erasable and the only one that holds the address: it is tombstoned once the offer has
// ended. What is offered, and how the offer ends, are events of the organization.
package offer

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
)

// Addressed names the address of an offer. It comes before organization.MemberOffered; without that, nothing is
// offered.
type Addressed struct {
	OfferID        uuid.UUID `json:"offerId"`
	OrganizationID uuid.UUID `json:"organizationId"`
	// Email is the address as it was given, Address the name of its stream, which is a keyed hash.
	Email       string    `json:"email"`
	Address     string    `json:"address"`
	AddressedAt time.Time `json:"addressedAt"`
}

func (Addressed) EventType() string { return "offer.addressed.v1" }

// State is what decisions need of an offer.
type State struct {
	// Events is how many events were folded.
	Events         int64
	OrganizationID uuid.UUID
	// Email and Address are as in Addressed.
	Email, Address string
}

// Evolve folds one event.
func (s *State) Evolve(e event.Event) {
	s.Events++
	if e, is := e.(*Addressed); is {
		s.OrganizationID, s.Email, s.Address = e.OrganizationID, e.Email, e.Address
	}
}
