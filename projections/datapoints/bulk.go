package datapoints

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Bulk is what waits in batches: items that are not derived, and the bytes of their texts.
type Bulk struct {
	Items int
	Bytes int64
}

// BulkByProject reads what waits in batches, by project. It reads a row for each project with such
// items, however many wait. A batch that is not fanned out has no items yet.
func (q Queries) BulkByProject(ctx context.Context) (map[uuid.UUID]Bulk, error) {
	rows, err := q.DB.Query(ctx, `select project_id, items, bytes from datapoints.bulk`)
	if err != nil {
		return nil, fmt.Errorf("read the backlog of batches: %w", err)
	}
	backlog := map[uuid.UUID]Bulk{}
	var (
		project uuid.UUID
		b       Bulk
	)
	_, err = pgx.ForEachRow(rows, []any{&project, &b.Items, &b.Bytes}, func() error { backlog[project] = b; return nil })
	if err != nil {
		return nil, fmt.Errorf("read the backlog of batches: %w", err)
	}
	return backlog, nil
}
