// Package auth authenticates callers: the kinds of credentials, the table from routes to the kinds
// they accept, and the principal of a request.
package auth

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
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
