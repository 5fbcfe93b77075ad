// Package organization is what belongs to an organization as a whole, not to one of its projects.
package organization

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
)

// ManagementKeySet sets the one management key of the organization, and revokes the former one.
// Hash is the SHA-256 of the clear key in lower-case hexadecimal. No event contains the clear key.
type ManagementKeySet struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	KeyID          uuid.UUID `json:"keyId"`
	Hash           string    `json:"hash"`
	Prefix         string    `json:"prefix"`
	Suffix         string    `json:"suffix"`
	SetAt          time.Time `json:"setAt"`
}

func (ManagementKeySet) EventType() string { return "organization.management-key-set.v1" }

// Role is what a member may do in the organization.
type Role string

// The roles.
const (
	Owner  Role = "owner"
	Admin  Role = "admin"
	Member Role = "member"
	// Auditor sees the pages of an Admin and changes nothing. Texts are an auditor's only if AuditorTextsSet allows it.
	Auditor Role = "auditor"
)

// MemberAdded makes a person a member. MemberID is the id of the person, in all events of members.
type MemberAdded struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	MemberID       uuid.UUID `json:"memberId"`
	Role           Role      `json:"role"`
	AddedAt        time.Time `json:"addedAt"`
}

func (MemberAdded) EventType() string { return "organization.member-added.v1" }

// MemberRoleSet gives a member another role.
type MemberRoleSet struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	MemberID       uuid.UUID `json:"memberId"`
	Role           Role      `json:"role"`
	SetAt          time.Time `json:"setAt"`
}

func (MemberRoleSet) EventType() string { return "organization.member-role-set.v1" }

// MemberRemoved ends a membership. The person of an erasure may own the organization without being a
// member yet; then it ends that.
type MemberRemoved struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	MemberID       uuid.UUID `json:"memberId"`
	RemovedAt      time.Time `json:"removedAt"`
}

func (MemberRemoved) EventType() string { return "organization.member-removed.v1" }

// Access is what a member with the role Member may do in a project. Owners and admins may write in each.
type Access string

// The accesses.
const (
	NoAccess    Access = ""
	ReadAccess  Access = "read"
	WriteAccess Access = "write"
)

// ProjectAccessSet gives a member access to a project, or ends it with NoAccess. A change of the role
// and the end of the membership end all accesses of the member.
type ProjectAccessSet struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	MemberID       uuid.UUID `json:"memberId"`
	ProjectID      uuid.UUID `json:"projectId"`
	Access         Access    `json:"access"`
	SetAt          time.Time `json:"setAt"`
}

func (ProjectAccessSet) EventType() string { return "organization.project-access-set.v1" }

// Reset is what an Admin resets for a member who cannot sign in any more.
type Reset string

// The resets. That of a password is a link by which the member sets another one.
const (
	ResetPassword     Reset = "password"
	ResetSecondFactor Reset = "second-factor"
)

// SignInReset records that somebody resets how a member signs in. Its metadata names who.
type SignInReset struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	MemberID       uuid.UUID `json:"memberId"`
	Reset          Reset     `json:"reset"`
	ResetAt        time.Time `json:"resetAt"`
}

func (SignInReset) EventType() string { return "organization.sign-in-reset.v1" }

// SecondFactorSet records whether members need a second factor to sign in.
type SecondFactorSet struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	Required       bool      `json:"required"`
	SetAt          time.Time `json:"setAt"`
}

func (SecondFactorSet) EventType() string { return "organization.second-factor-set.v1" }

// VisitsKeptSet sets for how many days the organization keeps what people did without changing anything (domain/visit).
type VisitsKeptSet struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	Days           int       `json:"days"`
	SetAt          time.Time `json:"setAt"`
}

func (VisitsKeptSet) EventType() string { return "organization.visits-kept-set.v1" }

// AuditorTextsSet records whether auditors may read texts.
type AuditorTextsSet struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	Allowed        bool      `json:"allowed"`
	SetAt          time.Time `json:"setAt"`
}

func (AuditorTextsSet) EventType() string { return "organization.auditor-texts-set.v1" }

// PlanSet puts the organization on a plan from SetAt on. ChargedTenths is what all its projects had
// been charged by then in Month: what was used before the plan was metered is not taken from the
// balance.
type PlanSet struct {
	OrganizationID uuid.UUID     `json:"organizationId"`
	Plan           metering.Plan `json:"plan"`
	Month          string        `json:"month"`
	ChargedTenths  int64         `json:"chargedTenths"`
	SetAt          time.Time     `json:"setAt"`
}

func (PlanSet) EventType() string { return "organization.plan-set.v1" }

// CreditsGranted adds credits to the balance of a month, or takes some back if Tenths is negative.
type CreditsGranted struct {
	OrganizationID uuid.UUID      `json:"organizationId"`
	Kind           metering.Grant `json:"kind"`
	Tenths         int64          `json:"tenths"`
	Month          string         `json:"month"`
	GrantedAt      time.Time      `json:"grantedAt"`
}

func (CreditsGranted) EventType() string { return "organization.credits-granted.v1" }

// SpendCapSet bounds what the organization may be charged in a month, in tenths of a credit; nil
// removes the cap.
type SpendCapSet struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	Tenths         *int64    `json:"tenths"`
	SetAt          time.Time `json:"setAt"`
}

func (SpendCapSet) EventType() string { return "organization.spend-cap-set.v1" }

// Prepared records that every part of the organization exists: from now on its keys are accepted.
type Prepared struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	PreparedAt     time.Time `json:"preparedAt"`
}

func (Prepared) EventType() string { return "organization.prepared.v1" }

// AgentApproved lets an agent call for a member, in one project or, without ProjectID, in each that the member may
// see. AgentID is the id of its registration. What the agent calls itself is in no event.
type AgentApproved struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	AgentID        uuid.UUID `json:"agentId"`
	MemberID       uuid.UUID `json:"memberId"`
	Scopes         []string  `json:"scopes"`
	ProjectID      uuid.UUID `json:"projectId,omitzero"`
	ApprovedAt     time.Time `json:"approvedAt"`
}

func (AgentApproved) EventType() string { return "organization.agent-approved.v1" }

// AgentDenied refuses an agent for good.
type AgentDenied struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	AgentID        uuid.UUID `json:"agentId"`
	MemberID       uuid.UUID `json:"memberId"`
	DeniedAt       time.Time `json:"deniedAt"`
}

func (AgentDenied) EventType() string { return "organization.agent-denied.v1" }

// AgentRevoked ends the registration of an agent: it gets no further token. One that it has works until it expires.
type AgentRevoked struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	AgentID        uuid.UUID `json:"agentId"`
	RevokedAt      time.Time `json:"revokedAt"`
}

func (AgentRevoked) EventType() string { return "organization.agent-revoked.v1" }

// AgentStopped ends the registration of an agent and refuses its tokens from its next call.
type AgentStopped struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	AgentID        uuid.UUID `json:"agentId"`
	StoppedAt      time.Time `json:"stoppedAt"`
}

func (AgentStopped) EventType() string { return "organization.agent-stopped.v1" }
