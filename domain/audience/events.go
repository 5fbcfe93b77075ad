// Package audience is the named sets of identities that a project scopes its data points to.
//
// The audiences of a project share one stream, audiences-<projectId>, which decides whose a slug is. An audience has an id of its
// own: a slug that is used again names another audience.
package audience

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
)

// Default is the slug of what every identity of a project reaches; it is no audience of its own, and its id is zero.
const Default = "project"

// Kind is how an audience says who belongs to it.
type Kind string

// The kinds. KindDefault is that of the project-visible one only.
const (
	KindDefault Kind = "default"
	KindFixed   Kind = "fixed"
	KindRule    Kind = "rule"
)

// Put creates an audience or replaces its name and definition. A fixed one has Members or MembersBlob, a rule one Rule or RuleBlob;
// blobs are owned by the project's id.
type Put struct {
	ProjectID  uuid.UUID `json:"projectId"`
	AudienceID uuid.UUID `json:"audienceId"`
	Slug       string    `json:"slug"`
	Name       string    `json:"name"`
	Kind       Kind      `json:"kind"`
	// Members are ids of directory records (stream.IdentityID), sorted; MembersBlob is the same list as 16 raw bytes each.
	Members     []uuid.UUID `json:"members,omitempty"`
	MembersBlob *blob.Ref   `json:"membersBlob,omitempty"`
	// RuleBlob is a Rule as JSON.
	Rule      *Rule     `json:"rule,omitempty"`
	RuleBlob  *blob.Ref `json:"ruleBlob,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	PutAt     time.Time `json:"putAt"`
}

// EventType implements event.Event.
func (Put) EventType() string { return "audience.put.v1" }

// Removed ends an audience: what is scoped to it reaches nobody, and its slug is free.
type Removed struct {
	ProjectID  uuid.UUID `json:"projectId"`
	AudienceID uuid.UUID `json:"audienceId"`
	RemovedAt  time.Time `json:"removedAt"`
}

// EventType implements event.Event.
func (Removed) EventType() string { return "audience.removed.v1" }

// Recomputed counts the members of an audience anew.
type Recomputed struct {
	ProjectID    uuid.UUID `json:"projectId"`
	AudienceID   uuid.UUID `json:"audienceId"`
	RecomputedAt time.Time `json:"recomputedAt"`
}

// EventType implements event.Event.
func (Recomputed) EventType() string { return "audience.recomputed.v1" }
