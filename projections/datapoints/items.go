package datapoints

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/auth"
)

// Item is an item of a send as clients see it.
type Item struct {
	Ordinal   int
	DataPoint uuid.UUID
	Revision  int
	// Outcome is created, updated, unchanged or moved, or deleted if its data point was deleted
	// since.
	Outcome string
	// Phase is queued, processing, captured, failed, done, or unindexed if the send failed on the
	// index.
	Phase string
}

// inSendList selects the items that a send lists. Once the send is deleted, it no longer lists
// items that were unchanged, or revised by another send since, even if they are deleted later.
const inSendList = `(s.deleted_at is null or i.outcome = 'deleted' or (i.deleted_at is not null
	and not i.superseded))`

// clientOutcome is the outcome that a client reads. A deletion is recorded only with the items that
// created a revision, since a data point may have far more unchanged ones.
const clientOutcome = `case when i.deleted_at is not null
		or i.outcome in ('unchanged', 'moved') and not exists (select from datapoints.data_points d
			where d.id = i.data_point)
	then 'deleted' else i.outcome end`

// clientPhase is the phase that a client reads. If a watermark preceded the failure of the index,
// the item counts as captured.
const clientPhase = `case when i.phase = 'unindexed' and s.phase = 'indexed' then 'captured' else i.phase end`

// Items lists at most limit items of a send of the project, in the order sent, and counts all of
// them. A batch lists an item once it is fanned out.
func (q Queries) Items(
	ctx context.Context, project auth.Project, ingestionID uuid.UUID, limit int,
) (items []Item, total int, err error) {
	rows, err := q.DB.Query(ctx, `select i.ordinal, i.data_point, i.revision, `+clientOutcome+`, `+clientPhase+`,
			count(*) over ()
		from datapoints.sends s join datapoints.items i on i.ingestion_id = s.id
		where s.id = $2 and s.project_id = $1 and `+inSendList+`
		order by i.ordinal limit $3`, project.ID, ingestionID, limit)
	if err != nil {
		return nil, 0, fmt.Errorf("list items: %w", err)
	}
	items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (i Item, err error) {
		err = row.Scan(&i.Ordinal, &i.DataPoint, &i.Revision, &i.Outcome, &i.Phase, &total)
		return i, err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list items: %w", err)
	}
	return items, total, nil
}
