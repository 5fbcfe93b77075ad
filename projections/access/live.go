package access

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// LiveKeys returns those of the project keys that are created and not revoked in the projection, and of the
// tokens of webhooks that are in use.
func (q Queries) LiveKeys(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]struct{}, error) {
	rows, err := q.DB.Query(ctx, `select id from access.keys where id = any($1) and revoked_at is null
		union all select token_id from access.webhooks where token_id = any($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("find live keys: %w", err)
	}
	live, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("find live keys: %w", err)
	}
	set := make(map[uuid.UUID]struct{}, len(live))
	for _, id := range live {
		set[id] = struct{}{}
	}
	return set, nil
}

// Preparing returns the organizations that are not prepared in the projection.
func (q Queries) Preparing(ctx context.Context) ([]uuid.UUID, error) {
	rows, err := q.DB.Query(ctx, `select id from access.organizations where not prepared order by created_at, id`)
	if err != nil {
		return nil, fmt.Errorf("list organizations that are preparing: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("list organizations that are preparing: %w", err)
	}
	return ids, nil
}
