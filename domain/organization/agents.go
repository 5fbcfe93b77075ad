package organization

import (
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
)

// Agent is what decisions need of an agent of an organization.
type Agent struct {
	Member  uuid.UUID
	Scopes  []string
	Project uuid.UUID
	// Revoked and Stopped are as in AgentRevoked and AgentStopped. A denied agent is both.
	Revoked, Stopped bool
}

// Of returns what a role may do in a project, given the access of a member.
func (a Access) Of(r Role) Access {
	switch r {
	case Owner, Admin:
		return WriteAccess
	case Member:
		return a
	default:
		return NoAccess
	}
}

func (s *State) setAgent(id uuid.UUID, a Agent) {
	if s.Agents == nil {
		s.Agents = make(map[uuid.UUID]Agent)
	}
	s.Agents[id] = a
}

func (s *State) endAgent(id uuid.UUID, stopped bool) {
	a := s.Agents[id]
	a.Revoked, a.Stopped = true, a.Stopped || stopped
	s.setAgent(id, a)
}

// endAgentsOf stops the agents of a member who left. They do not come back with the member.
func (s *State) endAgentsOf(member uuid.UUID) {
	for id, a := range s.Agents {
		if a.Member == member {
			s.endAgent(id, true)
		}
	}
}

// ApproveAgent lets an agent call for a member, once. Its faults are not-found for somebody who is no member, and
// conflict for an agent that was decided on otherwise and for more than limit.OrganizationAgents agents.
func (s *State) ApproveAgent(a AgentApproved) ([]event.Event, error) {
	known, is := s.Agents[a.AgentID]
	switch {
	case s.Members[a.MemberID] == "":
		return nil, noMember()
	case is && (known.Revoked || known.Member != a.MemberID || known.Project != a.ProjectID ||
		!slices.Equal(known.Scopes, a.Scopes)):
		return nil, fault.New(fault.Conflict, fault.CodeConflict, "the agent was decided on already; let it register again")
	case is:
		return nil, nil
	case s.liveAgents() >= limit.OrganizationAgents:
		return nil, fault.New(fault.Conflict, fault.CodeConflict,
			"an organization has at most %d agents; revoke one first", limit.OrganizationAgents)
	default:
		return []event.Event{a}, nil
	}
}

func (s *State) liveAgents() (n int) {
	for _, a := range s.Agents {
		if !a.Revoked {
			n++
		}
	}
	return n
}

// DenyAgent refuses an agent, or revokes it if the member approved it before. Its fault is not-found for somebody who
// is no member.
func (s *State) DenyAgent(d AgentDenied) ([]event.Event, error) {
	known, is := s.Agents[d.AgentID]
	switch {
	case s.Members[d.MemberID] == "":
		return nil, noMember()
	case !is:
		return []event.Event{d}, nil
	case known.Revoked:
		return nil, nil
	default:
		return s.RevokeAgent(AgentRevoked{OrganizationID: d.OrganizationID, AgentID: d.AgentID, RevokedAt: d.DeniedAt},
			d.MemberID)
	}
}

// RevokeAgent ends the registration of an agent. of is the member whose agent it must be, zero for anybody's. Its fault
// is not-found.
func (s *State) RevokeAgent(r AgentRevoked, of uuid.UUID) ([]event.Event, error) {
	known, is := s.Agents[r.AgentID]
	switch {
	case !is || of != uuid.Nil && known.Member != of:
		return nil, noAgent()
	case known.Revoked:
		return nil, nil
	default:
		return []event.Event{r}, nil
	}
}

// StopAgent ends the registration of an agent and its tokens. Its fault is not-found.
func (s *State) StopAgent(e AgentStopped) ([]event.Event, error) {
	known, is := s.Agents[e.AgentID]
	switch {
	case !is:
		return nil, noAgent()
	case known.Stopped:
		return nil, nil
	default:
		return []event.Event{e}, nil
	}
}

func noAgent() error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "the organization has no such agent")
}
