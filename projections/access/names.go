package access

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Names returns addresses of people, names of keys and slugs of projects, by their ids. Who is removed is not in it.
func (q Queries) Names(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error) {
	rows, err := q.DB.Query(ctx, `select id, email from access.people where id = any($1) and email is not null
		union all select id, name from access.keys where id = any($1)
		union all select id, slug from access.projects where id = any($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("find names: %w", err)
	}
	names := make(map[uuid.UUID]string, len(ids))
	var id uuid.UUID
	var name string
	if _, err = pgx.ForEachRow(rows, []any{&id, &name}, func() error {
		names[id] = name
		return nil
	}); err != nil {
		return nil, fmt.Errorf("find names: %w", err)
	}
	return names, nil
}
