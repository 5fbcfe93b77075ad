package access

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Owners maps projects to their organizations. It leaves out unknown projects.
func (q Queries) Owners(ctx context.Context, projects []uuid.UUID) (map[uuid.UUID]uuid.UUID, error) {
	rows, err := q.DB.Query(ctx, `select id, organization_id from access.projects where id = any($1::uuid[])`, projects)
	if err != nil {
		return nil, fmt.Errorf("find owners of projects: %w", err)
	}
	owners := make(map[uuid.UUID]uuid.UUID, len(projects))
	var project, organization uuid.UUID
	if _, err = pgx.ForEachRow(rows, []any{&project, &organization}, func() error {
		owners[project] = organization
		return nil
	}); err != nil {
		return nil, fmt.Errorf("find owners of projects: %w", err)
	}
	return owners, nil
}
