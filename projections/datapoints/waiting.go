package datapoints

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
)

// Waiting tells since when what is open waits. A zero time stands for nothing that does.
type Waiting struct {
	// Item is when the oldest item that waits for its first attempt was accepted.
	Item time.Time
	// Crowd is the same of the oldest that is preceded by a number of others, all of them accepted behind a position.
	Crowd time.Time
	// Captured is when the oldest send was accepted that only waits to be searchable.
	Captured time.Time
}

// waitingLook is how many items are looked at for one whose send was never retried: a retry takes no time of acceptance along.
const waitingLook = 64

// Waiting looks at the oldest of what is open. It reads a few rows of an index, however much that is.
func (q Queries) Waiting(ctx context.Context, behind eventstore.Position, before int) (w Waiting, err error) {
	var item, crowd, captured *time.Time
	err = q.DB.QueryRow(ctx, `select (
			select min(s.accepted_at) from (
				select ingestion_id from datapoints.items where phase = 'queued' and attempt = 0 order by position limit $3
			) i join datapoints.sends s on s.id = i.ingestion_id and s.round = 0
		), (
			select min(s.accepted_at) from (
				select ingestion_id from datapoints.items where phase = 'queued' and attempt = 0 and position > $1
				order by position offset $2 limit $3
			) i join datapoints.sends s on s.id = i.ingestion_id and s.round = 0
		), (
			select min(s.accepted_at) from (
				select * from datapoints.sends where phase = 'captured' and failed = 0 and deleted = 0 order by position limit $3
			) s where s.round = 0
		)`, int64(behind), before, waitingLook).Scan(&item, &crowd, &captured) //nolint:gosec // positions are below 2^63
	if err != nil {
		return Waiting{}, fmt.Errorf("look at what waits: %w", err)
	}
	for to, from := range map[*time.Time]*time.Time{&w.Item: item, &w.Crowd: crowd, &w.Captured: captured} {
		if from != nil {
			*to = from.UTC()
		}
	}
	return w, nil
}

// WaitingOf counts whose the oldest items are that wait for their first attempt and were accepted behind a position, by project.
func (q Queries) WaitingOf(ctx context.Context, behind eventstore.Position, limit int) (map[uuid.UUID]int, error) {
	rows, err := q.DB.Query(ctx, `select project_id, count(*) from (
			select project_id from datapoints.items where phase = 'queued' and attempt = 0 and position > $1 order by position limit $2
		) i group by project_id`, int64(behind), limit) //nolint:gosec // positions are below 2^63
	if err != nil {
		return nil, fmt.Errorf("count whose items wait: %w", err)
	}
	counts := map[uuid.UUID]int{}
	var (
		project uuid.UUID
		n       int
	)
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&project), &n}, func() error { counts[project] = n; return nil })
	if err != nil {
		return nil, fmt.Errorf("count whose items wait: %w", err)
	}
	return counts, nil
}
