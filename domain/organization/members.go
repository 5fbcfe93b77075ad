package organization

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
)

// Roles are all roles.
func Roles() []Role { return []Role{Owner, Admin, Member, Auditor} }

// Valid reports whether the role is one of Roles.
func (r Role) Valid() bool { return slices.Contains(Roles(), r) }

func (s *State) setRole(id uuid.UUID, role Role) {
	if s.Members == nil {
		s.Members = make(map[uuid.UUID]Role)
	}
	s.Members[id], s.Staffed = role, true
	delete(s.Access, id)
}

// Valid reports whether the access is one of the three.
func (a Access) Valid() bool { return a == NoAccess || a == ReadAccess || a == WriteAccess }

func (s *State) setAccess(id, project uuid.UUID, access Access) {
	if access == NoAccess {
		delete(s.Access[id], project)
		return
	}
	if s.Access == nil {
		s.Access = make(map[uuid.UUID]map[uuid.UUID]Access)
	}
	if s.Access[id] == nil {
		s.Access[id] = make(map[uuid.UUID]Access)
	}
	s.Access[id][project] = access
}

// Add makes a person a member, unless the person is one with the same role. The fault is conflict
// for a member with another role, and for too many members.
func (s *State) Add(m MemberAdded, limits Limits) ([]event.Event, error) {
	switch role, is := s.Members[m.MemberID]; {
	case !is && len(s.Members) >= limits.Members:
		return nil, fault.New(fault.Conflict, fault.CodeConflict, "an organization has at most %d members", limits.Members)
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

// SetAccess gives a member access to a project, or ends it. Its faults are not-found, and conflict for
// another role, which is for all projects, and for more than limit.MemberProjects projects.
func (s *State) SetAccess(set ProjectAccessSet) ([]event.Event, error) {
	role, is := s.Members[set.MemberID]
	current, has := s.Access[set.MemberID][set.ProjectID]
	switch {
	case !is:
		return nil, noMember()
	case role != Member:
		return nil, fault.New(fault.Conflict, fault.CodeConflict,
			"access to projects is for the role %s, and this member has the role %s", Member, role)
	case current == set.Access:
		return nil, nil
	case !has && len(s.Access[set.MemberID]) >= limit.MemberProjects:
		return nil, fault.New(fault.Conflict, fault.CodeConflict,
			"a member has access to at most %d projects; end one or give another role", limit.MemberProjects)
	default:
		return []event.Event{set}, nil
	}
}

// SetSecondFactor records whether members need a second factor.
func (s *State) SetSecondFactor(set SecondFactorSet) []event.Event {
	if s.SecondFactor == set.Required {
		return nil
	}
	return []event.Event{set}
}

// The bounds of the time for visits, and what an organization has that set none, in days.
const (
	LeastVisitDays   = 30
	MostVisitDays    = 3650
	DefaultVisitDays = 365
)

// KeepVisits sets for how many days visits are kept. Its fault is invalid-request.
func (s *State) KeepVisits(set VisitsKeptSet) ([]event.Event, error) {
	if set.Days < LeastVisitDays || set.Days > MostVisitDays {
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "visits are kept for %d to %d days, not %d",
			LeastVisitDays, MostVisitDays, set.Days)
	}
	if s.VisitDays() == set.Days {
		return nil, nil
	}
	return []event.Event{set}, nil
}

// VisitDays is for how many days visits are kept.
func (s *State) VisitDays() int { return cmp.Or(s.visitDays, DefaultVisitDays) }

// AllowTexts records whether auditors may read texts.
func (s *State) AllowTexts(set AuditorTextsSet) []event.Event {
	if s.AuditorTexts == set.Allowed {
		return nil
	}
	return []event.Event{set}
}

// RecordReset records that somebody resets how a member signs in. Its fault is not-found.
func (s *State) RecordReset(reset SignInReset) ([]event.Event, error) {
	if _, is := s.Members[reset.MemberID]; !is {
		return nil, noMember()
	}
	return []event.Event{reset}, nil
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
