package datapoints

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Sent are those of the data points that were ever sent, deleted and erased ones too, up to where the projection is.
func (q Queries) Sent(ctx context.Context, dataPoints []uuid.UUID) (map[uuid.UUID]struct{}, error) {
	// The items of a data point outlive it. One that was deleted before its batch was fanned out has its item only after that. A lateral query with a limit looks each id up in the index, however many there are.
	rows, err := q.DB.Query(ctx, `select k.id from unnest($1::uuid[]) k (id)
		cross join lateral ((select from datapoints.items i where i.data_point = k.id and i.outcome not in ('unchanged', 'moved') limit 1)
			union all (select from datapoints.erasures e where e.data_point = k.id)) i`, idsOf(dataPoints))
	if err != nil {
		return nil, fmt.Errorf("look for data points: %w", err)
	}
	sent := make(map[uuid.UUID]struct{})
	var id uuid.UUID
	if _, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&id)}, func() error { sent[id] = struct{}{}; return nil }); err != nil {
		return nil, fmt.Errorf("look for data points: %w", err)
	}
	return sent, nil
}
