// Package audience is the named sets of identities that a project scopes its data points to.
//
// The audiences of a project share one stream, audiences-<projectId>, which decides which audience
// has a slug. Each audience has a separate id: a slug that is used again names another audience.
package audience

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
)

// Default is the slug of the project-visible scope, which every identity of a project reaches. It
// is not an audience; its id is zero.
const Default = "project"

// Kind is how an audience defines its members.
type Kind string

// The kinds. KindDefault is that of the project-visible one only.
const (
	KindDefault Kind = "default"
	KindFixed   Kind = "fixed"
	KindRule    Kind = "rule"
)

// Put creates an audience or replaces its name and definition. A fixed one has Members or
// MembersBlob, a rule one Rule or RuleBlob. The project's id owns the blobs.
type Put struct {
	ProjectID  uuid.UUID `json:"projectId"`
	AudienceID uuid.UUID `json:"audienceId"`
	Slug       string    `json:"slug"`
	Name       string    `json:"name"`
	Kind       Kind      `json:"kind"`
	// Members are ids of identity records (stream.IdentityID), sorted. MembersBlob is the same list as
	// 16 raw bytes each.
	Members     []uuid.UUID `json:"members,omitempty"`
	MembersBlob *blob.Ref   `json:"membersBlob,omitempty"`
	// RuleBlob is a Rule as JSON.
	Rule      *Rule     `json:"rule,omitempty"`
	RuleBlob  *blob.Ref `json:"ruleBlob,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	PutAt     time.Time `json:"putAt"`
}

func (Put) EventType() string { return "audience.put.v1" }

// Removed removes an audience: data points that are scoped to it have no readers, and its slug is
// free.
type Removed struct {
	ProjectID  uuid.UUID `json:"projectId"`
	AudienceID uuid.UUID `json:"audienceId"`
	RemovedAt  time.Time `json:"removedAt"`
}

func (Removed) EventType() string { return "audience.removed.v1" }

// Recomputed counts the members of an audience again.
type Recomputed struct {
	ProjectID    uuid.UUID `json:"projectId"`
	AudienceID   uuid.UUID `json:"audienceId"`
	RecomputedAt time.Time `json:"recomputedAt"`
}

func (Recomputed) EventType() string { return "audience.recomputed.v1" }
