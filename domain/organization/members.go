package organization

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
)

// Valid reports whether the role is one of the three.
func (r Role) Valid() bool { return r == Owner || r == Admin || r == Member }

func (s *State) setRole(id uuid.UUID, role Role) {
	if s.Members == nil {
		s.Members = make(map[uuid.UUID]Role)
	}
	s.Members[id], s.Staffed = role, true
}

// Add makes a person a member, unless the person is one with the same role. The fault is conflict
// for a member with another role.
func (s *State) Add(m MemberAdded) ([]event.Event, error) {
	switch role, is := s.Members[m.MemberID]; {
	case !is:
		return []event.Event{m}, nil
	case role == m.Role:
		return nil, nil
	default:
		return nil, fault.New(fault.Conflict, fault.CodeConflict,
			"the person is a member already, with the role %s; change the role instead", role)
	}
}

// SetRole gives a member another role. Its faults are not-found, and conflict for the last owner.
func (s *State) SetRole(set MemberRoleSet) ([]event.Event, error) {
	switch role, is := s.Members[set.MemberID]; {
	case !is:
		return nil, noMember()
	case role == set.Role:
		return nil, nil
	case s.isLastOwner(set.MemberID):
		return nil, lastOwner()
	default:
		return []event.Event{set}, nil
	}
}

// Remove ends a membership. Its faults are not-found, and conflict for the last owner.
func (s *State) Remove(id, organization uuid.UUID, at time.Time) ([]event.Event, error) {
	if _, is := s.Members[id]; !is {
		return nil, noMember()
	}
	if s.isLastOwner(id) {
		return nil, lastOwner()
	}
	return s.Erase(id, uuid.Nil, organization, at), nil
}

// Erase ends the membership of a person who is erased, also that of the last owner. creator is the
// owner that the preparation adds.
func (s *State) Erase(id, creator, organization uuid.UUID, at time.Time) []event.Event {
	if !s.Has(id, creator) {
		return nil
	}
	return []event.Event{MemberRemoved{OrganizationID: organization, MemberID: id, RemovedAt: at}}
}

// Has reports whether a person is a member, or is the creator and becomes one in the preparation.
func (s *State) Has(id, creator uuid.UUID) bool {
	_, is := s.Members[id]
	return is || !s.Staffed && id == creator
}

func (s *State) isLastOwner(id uuid.UUID) bool {
	for other, role := range s.Members {
		if role == Owner && other != id {
			return false
		}
	}
	return s.Members[id] == Owner
}

func noMember() error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "the organization has no such member")
}

func lastOwner() error {
	return fault.New(fault.Conflict, fault.CodeConflict,
		"the last owner of an organization stays its owner; make another member an owner first")
}
