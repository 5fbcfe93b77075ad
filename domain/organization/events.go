// Package organization is what belongs to an organization rather than to one of its projects.
package organization

import (
	"time"

	"github.com/google/uuid"
)

// ManagementKeySet gives the organization its one management key; a former one ends with it.
// Hash is the SHA-256 of the clear key in lower-case hexadecimal, which is in no event.
type ManagementKeySet struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	KeyID          uuid.UUID `json:"keyId"`
	Hash           string    `json:"hash"`
	Prefix         string    `json:"prefix"`
	Suffix         string    `json:"suffix"`
	SetAt          time.Time `json:"setAt"`
}

// EventType implements event.Event.
func (ManagementKeySet) EventType() string { return "organization.management-key-set.v1" }
