package todo

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
)

// Charge is a sum of recalls of a project in a month that is to be appended to the log, and is counted beside it until then.
type Charge struct {
	FlushID        uuid.UUID
	ProjectID      uuid.UUID
	OrganizationID uuid.UUID
	Month          string
	Recalls        int64
	RecallTenths   int64
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
