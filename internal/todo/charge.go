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

// Due is how long what was counted stays beside the log. The zero value takes everything.
type Due struct {
	// Sum is about how long the sum of a project does: half of it to one and a half, so that projects do not come all at once.
	Sum time.Duration
	// Seen is how long an identity does, at least.
	Seen time.Duration
}
