package todo

import (
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
