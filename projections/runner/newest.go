package runner

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

// NewestApplied returns the newest event of a log that any process has applied, as the checkpoints name it; position 0
// if none does.
func (rt *Runtime) NewestApplied(ctx context.Context, logID uuid.UUID) (eventstore.Position, uuid.UUID, error) {
	var (
		at eventstore.Position
		id uuid.UUID
	)
	for _, r := range rt.runners {
		row, err := r.table.read(ctx)
		if err != nil {
			return 0, uuid.Nil, err
		}
		if row.logID == logID && row.last != nil && row.position > at {
			at, id = row.position, *row.last
		}
	}
	return at, id, nil
}
