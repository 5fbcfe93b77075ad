// Package person is somebody who is a member of organizations, and the e-mail address by which a
// person is found.
//
// The stream of a person is erasable and the only one that holds the address. It also records each
// organization that the person began to join, so that its end can be decided at one revision:
// memberships themselves are events of the organizations. The stream of an address is named by a
// keyed hash of the address and holds ids of people alone.
package person

import (
	"time"

	"github.com/google/uuid"
)

// RemovedName is shown in the place of the name or the address of an erased person.
const RemovedName = "removed person"

// Registered begins a person. Email is the address as the person gave it.
type Registered struct {
	PersonID     uuid.UUID `json:"personId"`
	Email        string    `json:"email"`
	RegisteredAt time.Time `json:"registeredAt"`
}

func (Registered) EventType() string { return "person.registered.v1" }

// JoinBegun is stored before an organization adds the person as a member.
type JoinBegun struct {
	PersonID       uuid.UUID `json:"personId"`
	OrganizationID uuid.UUID `json:"organizationId"`
	BegunAt        time.Time `json:"begunAt"`
}

func (JoinBegun) EventType() string { return "person.join-begun.v1" }

// AddressChanged gives a person another address. The address was claimed for the person before.
type AddressChanged struct {
	PersonID  uuid.UUID `json:"personId"`
	Email     string    `json:"email"`
	ChangedAt time.Time `json:"changedAt"`
}

func (AddressChanged) EventType() string { return "person.address-changed.v1" }

// Removed ends a person: nothing follows it, and the stream is about to be tombstoned.
type Removed struct {
	PersonID  uuid.UUID `json:"personId"`
	RemovedAt time.Time `json:"removedAt"`
}

func (Removed) EventType() string { return "person.removed.v1" }

// AddressClaimed makes a person the one of an address. It replaces a person whose stream is
// tombstoned.
type AddressClaimed struct {
	PersonID  uuid.UUID `json:"personId"`
	ClaimedAt time.Time `json:"claimedAt"`
}

func (AddressClaimed) EventType() string { return "address.claimed.v1" }

// AddressReleased ends a claim: nothing of the person is left on the disks that the service cleans, or
// the person has another address.
type AddressReleased struct {
	PersonID   uuid.UUID `json:"personId"`
	ReleasedAt time.Time `json:"releasedAt"`
}

func (AddressReleased) EventType() string { return "address.released.v1" }
