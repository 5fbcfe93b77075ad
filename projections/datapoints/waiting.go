package datapoints

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
)

// Waiting holds acceptance times of the oldest open items of the live lane and of the oldest sends. The
// zero time means none. What waits in batches is bounded by its amount (BulkByProject).
type Waiting struct {
	// Item is the acceptance of the oldest item that waits for its first attempt.
	Item time.Time
	// Backlogged is the acceptance of the oldest such item that follows a number of others, counted
	// from a position on.
	Backlogged time.Time
	// Captured is the acceptance of the oldest send that only waits to be searchable.
	Captured time.Time
}

// waitingScan is how many items are read to find one whose send was not retried: a retry keeps the
// old acceptance time.
const waitingScan = 64

// Waiting reads the oldest open items and sends. For Backlogged it skips the given number of items
// that were accepted after a position. It reads a few rows of an index, however many items are
// open.
func (q Queries) Waiting(ctx context.Context, after eventstore.Position, before int) (w Waiting, err error) {
	var item, overLimit, captured *time.Time
	err = q.DB.QueryRow(ctx, `select (
			select min(s.accepted_at) from (
				select ingestion_id from datapoints.items where phase = 'queued' and attempt = 0 and not batch
				order by position limit $3
			) i join datapoints.sends s on s.id = i.ingestion_id and s.round = 0
		), (
			select min(s.accepted_at) from (
				select ingestion_id from datapoints.items where phase = 'queued' and attempt = 0 and not batch and position > $1
				order by position offset $2 limit $3
			) i join datapoints.sends s on s.id = i.ingestion_id and s.round = 0
		), (
			select min(s.accepted_at) from (
				select * from datapoints.sends where phase = 'captured' and failed = 0 and deleted = 0
				order by position limit $3
			) s where s.round = 0
		)`, int64(after), before, waitingScan).
		Scan(&item, &overLimit, &captured)
	if err != nil {
		return Waiting{}, fmt.Errorf("read oldest open items: %w", err)
	}
	for to, from := range map[*time.Time]*time.Time{&w.Item: item, &w.Backlogged: overLimit, &w.Captured: captured} {
		if from != nil {
			*to = from.UTC()
		}
	}
	return w, nil
}

// WaitingByProject counts, by project, the oldest items of the live lane that wait for their first attempt and were
// accepted after a position. It counts at most limit items.
func (q Queries) WaitingByProject(
	ctx context.Context, after eventstore.Position, limit int,
) (map[uuid.UUID]int, error) {
	rows, err := q.DB.Query(ctx, `select project_id, count(*) from (
			select project_id from datapoints.items where phase = 'queued' and attempt = 0 and not batch and position > $1
			order by position limit $2
		) i group by project_id`, int64(after), limit)
	if err != nil {
		return nil, fmt.Errorf("count waiting items by project: %w", err)
	}
	counts := map[uuid.UUID]int{}
	var (
		project uuid.UUID
		n       int
	)
	_, err = pgx.ForEachRow(rows, []any{&project, &n}, func() error { counts[project] = n; return nil })
	if err != nil {
		return nil, fmt.Errorf("count waiting items by project: %w", err)
	}
	return counts, nil
}
