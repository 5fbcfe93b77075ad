package organization

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
)

// GrantApproved lets a client (OAuth) act for a member. ProjectID is zero for all projects of the member. The name of
// the client is not in it, since a stranger chose it.
type GrantApproved struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	MemberID       uuid.UUID `json:"memberId"`
	GrantID        uuid.UUID `json:"grantId"`
	ProjectID      uuid.UUID `json:"projectId,omitzero"`
	Scopes         []string  `json:"scopes"`
	ApprovedAt     time.Time `json:"approvedAt"`
}

// EventType implements event.Event.
func (GrantApproved) EventType() string { return "organization.grant-approved.v1" }

// Project returns the project that the event belongs to, zero for none.
func (e GrantApproved) Project() uuid.UUID { return e.ProjectID }

// GrantRevoked ends what GrantApproved allowed.
type GrantRevoked struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	MemberID       uuid.UUID `json:"memberId"`
	GrantID        uuid.UUID `json:"grantId"`
	RevokedAt      time.Time `json:"revokedAt"`
}

// EventType implements event.Event.
func (GrantRevoked) EventType() string { return "organization.grant-revoked.v1" }

// ApproveGrant records what a member lets a client do. Its fault is not-found.
func (s *State) ApproveGrant(approved GrantApproved) ([]event.Event, error) {
	if _, is := s.Members[approved.MemberID]; !is {
		return nil, noMember()
	}
	return []event.Event{approved}, nil
}
