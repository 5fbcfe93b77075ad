package datapoints

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/auth"
)

// Item is an item of a send as clients are shown it.
type Item struct {
	Ordinal   int
	DataPoint uuid.UUID
	Revision  int
	// Outcome is created, updated, unchanged or moved, or deleted since.
	Outcome string
	// Phase is queued, processing, captured, failed or done; unindexed where the send failed on the index.
	Phase string
}

// shown is the rule of a send's list: once the send was deleted as a whole, what was unchanged or has been revised since is no
// longer in it, whatever becomes of it later.
const shown = `(s.deleted_at is null or i.outcome = 'deleted' or (i.deleted_at is not null and not i.superseded))`

// seenOutcome is what a client reads of an item. The deletion of a data point is recorded with the items that brought a
// revision alone, of which there may be far fewer.
const seenOutcome = `case when i.deleted_at is not null
		or i.outcome in ('unchanged', 'moved') and not exists (select from datapoints.data_points d where d.id = i.data_point)
	then 'deleted' else i.outcome end`

// seenPhase is the phase that a client reads. If a watermark preceded the failure of the index, the
// item counts as captured.
const seenPhase = `case when i.phase = 'unindexed' and s.phase = 'indexed' then 'captured' else i.phase end`

// Items lists at most limit items of a send, in the order sent, and counts all that it has. A batch shows each item once its
// fan-out has come to it. The send of another project has none.
func (q Queries) Items(ctx context.Context, project auth.Project, ingestionID uuid.UUID, limit int) (items []Item, total int, err error) {
	rows, err := q.DB.Query(ctx, `select i.ordinal, i.data_point, i.revision, `+seenOutcome+`, `+seenPhase+`,
			count(*) over ()
		from datapoints.sends s join datapoints.items i on i.ingestion_id = s.id
		where s.id = $2 and s.project_id = $1 and `+shown+`
		order by i.ordinal limit $3`, project.ID, ingestionID, limit)
	if err != nil {
		return nil, 0, fmt.Errorf("list items: %w", err)
	}
	items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (i Item, err error) {
		err = row.Scan(&i.Ordinal, (*[16]byte)(&i.DataPoint), &i.Revision, &i.Outcome, &i.Phase, &total)
		return i, err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list items: %w", err)
	}
	return items, total, nil
}
