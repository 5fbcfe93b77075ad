package organization

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
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

func (GrantApproved) EventType() string { return "organization.grant-approved.v1" }

// GrantRevoked ends what GrantApproved allowed.
type GrantRevoked struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	MemberID       uuid.UUID `json:"memberId"`
	GrantID        uuid.UUID `json:"grantId"`
	RevokedAt      time.Time `json:"revokedAt"`
}

func (GrantRevoked) EventType() string { return "organization.grant-revoked.v1" }

// Grant is what decisions need of a grant.
type Grant struct {
	Member uuid.UUID
	Ended  bool
}

func (s *State) setGrant(id uuid.UUID, g Grant) {
	if s.Grants == nil {
		s.Grants = make(map[uuid.UUID]Grant)
	}
	s.Grants[id] = g
}

// endGrantsOf ends the grants of a member who left. They do not come back with the member.
func (s *State) endGrantsOf(member uuid.UUID) {
	for id, g := range s.Grants {
		if g.Member == member {
			s.setGrant(id, Grant{Member: member, Ended: true})
		}
	}
}

// ApproveGrant records what a member lets a client do. Its faults are not-found for somebody who is no member, and
// conflict for a grant that has ended: its tokens would work again.
func (s *State) ApproveGrant(approved GrantApproved) ([]event.Event, error) {
	if _, is := s.Members[approved.MemberID]; !is {
		return nil, noMember()
	}
	if s.Grants[approved.GrantID].Ended {
		return nil, fault.New(fault.Conflict, fault.CodeConflict, "the grant has ended; make another one")
	}
	return []event.Event{approved}, nil
}
