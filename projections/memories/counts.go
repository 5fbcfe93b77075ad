package memories

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Queries answers from the tables of this projection.
type Queries struct {
	DB *pgxpool.Pool
}

// Current counts, for each project of a list, the memories of the newest captured revisions.
func (q Queries) Current(ctx context.Context, projects []uuid.UUID) (map[uuid.UUID]int64, error) {
	list := make([][16]byte, len(projects))
	for i, id := range projects {
		list[i] = id
	}
	rows, err := q.DB.Query(ctx, `
		select c.project_id, count(*)
		from memories.captured c join memories.memories m on m.data_point = c.data_point and m.revision = c.revision
		where c.project_id = any ($1::uuid[]) group by c.project_id`, list)
	if err != nil {
		return nil, fmt.Errorf("count memories: %w", err)
	}
	counts := make(map[uuid.UUID]int64, len(projects))
	var id [16]byte
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		counts[id] = n
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count memories: %w", err)
	}
	return counts, nil
}
