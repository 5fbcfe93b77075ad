package access

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/unnest"
)

// Owners are the organizations of projects. A project that is not there is not in the answer.
func (q Queries) Owners(ctx context.Context, projects []uuid.UUID) (map[uuid.UUID]uuid.UUID, error) {
	rows, err := q.DB.Query(ctx, `select id, organization_id from access.projects where id = any($1::uuid[])`, unnest.IDs(projects, func(id uuid.UUID) uuid.UUID { return id }))
	if err != nil {
		return nil, fmt.Errorf("find owners of projects: %w", err)
	}
	owners := make(map[uuid.UUID]uuid.UUID, len(projects))
	var project, organization uuid.UUID
	if _, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&project), (*[16]byte)(&organization)}, func() error {
		owners[project] = organization
		return nil
	}); err != nil {
		return nil, fmt.Errorf("find owners of projects: %w", err)
	}
	return owners, nil
}
