package work

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
)

// Charge is a number of recalls and of received events of a project in a month that a flush is to
// append to the log.
type Charge struct {
	FlushID        uuid.UUID
	ProjectID      uuid.UUID
	OrganizationID uuid.UUID
	Month          string
	Recalls        int64
	RecallTenths   int64
	WebhookEvents  int64
	WebhookTenths  int64
	Seen           []metering.Seen
}

// Due is the age from which counts are flushed to the log. The zero value flushes everything.
type Due struct {
	// Sum is the average age of the recalls of a project: from half of it to one and a half, so
	// that projects are not due all at once.
	Sum time.Duration
	// Seen is the least age of a seen identity.
	Seen time.Duration
}

// Reservation is what one try of a send holds of the limits of its organization.
type Reservation struct {
	SendID, Try uuid.UUID
}
