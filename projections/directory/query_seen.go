package directory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/auth"
)

// LastSeen is when a record that was made at a time last wrote a data point or recalled since then, nil where it did not.
func (q *Queries) LastSeen(ctx context.Context, project auth.Project, id uuid.UUID, createdAt time.Time) (*time.Time, error) {
	rows, err := q.db.Query(ctx, `select at from directory.seen where id = $2 and project_id = $1`, [16]byte(project.ID), [16]byte(id))
	if err != nil {
		return nil, fmt.Errorf("look when an identity was seen: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		return nil, fmt.Errorf("look when an identity was seen: %w", err)
	}
	one := Identity{id: id, CreatedAt: createdAt}
	if len(found) > 0 {
		one.LastSeenAt = &found[0]
	}
	if err := q.lastSeen(ctx, project, []*Identity{&one}); err != nil {
		return nil, err
	}
	return one.LastSeenAt, nil
}
