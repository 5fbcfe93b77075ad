package access

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// LivePeople returns those of some people who are registered and not removed.
func (q Queries) LivePeople(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]bool, error) {
	live := make(map[uuid.UUID]bool, len(ids))
	rows, err := q.DB.Query(ctx, `select id from access.people where id = any($1) and email is not null`, ids)
	if err != nil {
		return nil, fmt.Errorf("find people: %w", err)
	}
	var id uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		live[id] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find people: %w", err)
	}
	return live, nil
}
