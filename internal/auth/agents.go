package auth

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
)

// Agents finds agents, in the state of the newest applied event.
type Agents interface {
	// Agent finds an approved agent by the id of its registration, with what its person may do now. ok is false for an
	// unknown one, and if the person is no member of the organization any more.
	Agent(ctx context.Context, id uuid.UUID) (h AgentHolder, ok bool, err error)
}

// AgentHolder is an agent and the person who approved it.
type AgentHolder struct {
	ID, Organization, Person uuid.UUID
	// Scopes are those that were approved. Only is the one project that was approved, zero for all.
	Scopes []Scope
	Only   uuid.UUID
	// Revoked agents get no further token, Stopped ones open nothing.
	Revoked, Stopped bool
	// Preparing reports that parts of the organization are still being created.
	Preparing bool
	// Limits are those of the organization.
	Limits metering.Caps
	// Role is that of the person, Access what the role Member may do in projects.
	Role   organization.Role
	Access map[uuid.UUID]organization.Access
	// Projects are the oldest live projects that the agent may open, at most two.
	Projects []Named
}

// In returns what the agent may do in a project of its organization, by the role of its person.
func (h AgentHolder) In(project uuid.UUID) organization.Access {
	if h.Only != uuid.Nil && h.Only != project {
		return organization.NoAccess
	}
	return h.Access[project].Of(h.Role)
}

// Best returns what the agent may do in the project in which it may do the most.
func (h AgentHolder) Best() (best organization.Access) {
	if h.Only != uuid.Nil {
		return h.In(h.Only)
	}
	best = organization.NoAccess.Of(h.Role)
	for _, access := range h.Access {
		if access = access.Of(h.Role); best != organization.WriteAccess {
			best = access
		}
	}
	return best
}

// Allowed are the scopes of those asked for that an access allows: reading to all who have one.
func Allowed(scopes []Scope, access organization.Access) (allowed []Scope) {
	for _, scope := range []Scope{Read, Write} {
		may := access == organization.WriteAccess || access == organization.ReadAccess && scope == Read
		if may && slices.Contains(scopes, scope) {
			allowed = append(allowed, scope)
		}
	}
	return allowed
}

// ParseScopes reads the known scopes of a list with spaces. It ignores other words.
func ParseScopes(text string) (scopes []Scope) {
	words := strings.Fields(text)
	for _, scope := range []Scope{Read, Write} {
		if slices.Contains(words, string(scope)) {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// JoinScopes is the inverse of ParseScopes.
func JoinScopes(scopes []Scope) string {
	words := make([]string, len(scopes))
	for i, scope := range scopes {
		words[i] = string(scope)
	}
	return strings.Join(words, " ")
}
