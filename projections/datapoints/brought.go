package datapoints

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/auth"
)

// Brought is a data point of a send. The zero value is one that was deleted since.
type Brought struct {
	SourceID string
	// Newest reports that the send brought the newest revision.
	Newest bool
	// Author wrote the newest revision, SentBy the one that the send brought or repeated; "" for none.
	Author, SentBy string
}

// Brought returns the data points that a send names, in its order. found is false if the project has no such send,
// after the projection has applied the head of the log.
func (q Queries) Brought(
	ctx context.Context, project auth.Project, send uuid.UUID,
) (list []Brought, found bool, err error) {
	if _, found, err = q.Targets(ctx, project, send); err != nil || !found {
		return nil, false, err
	}
	rows, err := q.DB.Query(ctx, `select coalesce(d.source_id, ''), coalesce(d.ingestion_id = i.ingestion_id, false),
			coalesce(d.author, ''), case when d.id is not null then coalesce(r.author, '') else '' end
		from datapoints.items i
		left join datapoints.data_points d on d.id = i.data_point and d.project_id = i.project_id
		left join datapoints.revisions r on r.data_point = i.data_point and r.number = i.revision
		where i.ingestion_id = $1 and i.project_id = $2 order by i.ordinal`, send, project.ID)
	if err != nil {
		return nil, false, fmt.Errorf("read what a send brought: %w", err)
	}
	list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Brought])
	if err != nil {
		return nil, false, fmt.Errorf("read what a send brought: %w", err)
	}
	return list, true, nil
}
