// Package auth authenticates callers: the kinds of credentials, the table from routes to the kinds
// they accept, and the principal of a request.
package auth

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/webhook"
)

// Kind is a kind of credential.
type Kind string

// The kinds of credentials.
const (
	ProjectKey    Kind = "project key"
	ManagementKey Kind = "management key"
	// AgentToken is a token of an agent. KeyID is the id of its registration, KeyName is "agent:" and its name.
	AgentToken   Kind = "agent token"
	WebhookToken Kind = "webhook token"
	// Person is somebody who is signed in at the console. KeyID is the id of the person, KeyName is
	// ConsoleName.
	Person Kind = "person"
)

// ConsoleName is shown as the name of the key of what a person does at the console.
const ConsoleName = "console"

// Principal is the caller that the authentication middleware found.
type Principal struct {
	Kind    Kind
	KeyID   uuid.UUID
	KeyName string
	// KeyPrefix is the beginning of the key that is shown to people.
	KeyPrefix      string
	OrganizationID uuid.UUID
	// Project is the one project that the call may touch; zero for a management key that names none.
	Project Project
	// Limits are those of the organization and of Project.
	Limits metering.Caps
	// Webhook is the webhook of a webhook token, nil for other callers. Then KeyID is the id of the
	// token, KeyName the name of the webhook, and KeyPrefix its id.
	Webhook *Webhook
}

// Webhook is a webhook as its token was looked up.
type Webhook struct {
	ID     string // "whk_" and 20 characters
	Paused bool
	// Archived reports that the project is archived.
	Archived bool
	Settings webhook.Settings
	// SentBy is the person who sent an event from the console, zero for another sender.
	SentBy uuid.UUID
}

// Project is the scope of every query and command of a call.
type Project struct {
	ID     uuid.UUID
	Number int64
	Slug   string
	// Namespace is what stream.DataPointID, IdentityID and IngestionID take (stream.Namespaces.Of).
	// It is a secret: never store or log it.
	Namespace uuid.UUID
	// Reads is how reads of the project are recorded, "" if they are not.
	Reads project.ReadsMode
}

// Name is the principal as events and logs name it; it holds no secret.
func (p Principal) Name() string {
	switch p.Kind {
	case ProjectKey:
		return "key:" + p.KeyID.String()
	case ManagementKey:
		return "management-key:" + p.KeyID.String()
	case WebhookToken:
		if p.Webhook.SentBy != uuid.Nil {
			return "person:" + p.Webhook.SentBy.String()
		}
		return "webhook:" + p.Webhook.ID
	case AgentToken:
		return "agent:" + p.KeyID.String()
	case Person:
		return "person:" + p.KeyID.String()
	default:
		return string(p.Kind)
	}
}

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
