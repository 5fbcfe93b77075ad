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

// BulkByProject reads what waits in batches, by project.
func (q Queries) BulkByProject(ctx context.Context) (map[uuid.UUID]Bulk, error) {
	rows, err := q.DB.Query(ctx, `select i.project_id, count(*), coalesce(sum(octet_length(r.content)), 0)::bigint
		from datapoints.items i join datapoints.sends s on s.id = i.ingestion_id and s.batch
		left join datapoints.revisions r on r.data_point = i.data_point and r.number = i.revision
		where i.phase in ('queued', 'processing') group by i.project_id`)
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
