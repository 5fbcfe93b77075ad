package work

import (
	"time"

	"github.com/google/uuid"
)

// Person is a person who is removed, or a member of no organization, or has several addresses, or whose
// address was claimed and nothing followed; or the id of an erased person who is still a member.
type Person struct {
	ID uuid.UUID
	// Addresses are the streams of the addresses that are claimed for the person, none if nothing of the
	// person but the membership is known. ClaimedAt is the first claim.
	Addresses []string
	ClaimedAt time.Time
	// Organizations are those that the person is a member of.
	Organizations []uuid.UUID
}

// Offer is the address of an offer that has ended or expired, or of one that was never made.
type Offer struct {
	ID, Organization uuid.UUID
	// AddressedAt is zero for an offer that its command knows to have ended.
	AddressedAt time.Time
}

// Visits are those of a person, or of operators, to an organization in a month. The person is removed, or the month is
// older than the organization keeps.
type Visits struct {
	Stream       string
	Organization uuid.UUID
	// Person is zero for operators.
	Person uuid.UUID
}
