// Package identity is one record of the identity directory.
package identity

import (
	"time"

	"github.com/google/uuid"
)

// Origin says what created a record.
type Origin string

// OriginIngest is the origin of a record that the first send of an author created.
const OriginIngest Origin = "ingest"

// Appeared creates the record, without traits.
type Appeared struct {
	ProjectID  uuid.UUID `json:"projectId"`
	Identity   string    `json:"identity"`
	Origin     Origin    `json:"origin"`
	AppearedAt time.Time `json:"appearedAt"`
}

// EventType implements event.Event.
func (Appeared) EventType() string { return "identity.appeared.v1" }
