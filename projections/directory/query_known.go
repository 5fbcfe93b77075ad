package directory

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/auth"
)

// Known are those of the ids that have a record in a project, as far as the projection has seen: who was removed by a removal that
// was answered is not among them. The fault is service-unavailable while the projection is stopped.
func (q *Queries) Known(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]struct{}, error) {
	if err := q.running(ctx); err != nil {
		return nil, err
	}
	rows, err := q.db.Query(ctx, `select id from directory.identities where id = any($2::uuid[]) and project_id = $1`, [16]byte(project.ID), idsOf(ids))
	if err != nil {
		return nil, fmt.Errorf("find the records of identities: %w", err)
	}
	known := make(map[uuid.UUID]struct{}, len(ids))
	var id [16]byte
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		known[id] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find the records of identities: %w", err)
	}
	return known, nil
}
