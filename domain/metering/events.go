package metering

import (
	"time"

	"github.com/google/uuid"
)

// Charged is what a project was charged in a month for calls other than sends, counted over some
// minutes by one process.
type Charged struct {
	ProjectID      uuid.UUID `json:"projectId"`
	OrganizationID uuid.UUID `json:"organizationId"`
	// FlushID identifies this sum, so that it is not counted twice.
	FlushID uuid.UUID `json:"flushId"`
	Month   string    `json:"month"`
	// Recalls were answered, for RecallTenths in all.
	Recalls      int64 `json:"recalls"`
	RecallTenths int64 `json:"recallTenths"`
	// WebhookEvents were received, for WebhookTenths in all.
	WebhookEvents int64 `json:"webhookEvents"`
	WebhookTenths int64 `json:"webhookTenths"`
	// Seen are the identities that recalled.
	Seen []Seen    `json:"seen"`
	At   time.Time `json:"at"`
}

// Seen is when an identity was last seen. IdentityID is its stream.IdentityID, with or without a
// record.
type Seen struct {
	IdentityID uuid.UUID `json:"identityId"`
	At         time.Time `json:"at"`
}

func (Charged) EventType() string { return "usage.charged.v1" }
