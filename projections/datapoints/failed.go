package datapoints

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/pgarray"
)

// FailedSend is a failed send whose failure still counts.
type FailedSend struct {
	ProjectID   uuid.UUID
	IngestionID uuid.UUID
	Failure     Failure
	// Items counts the items of the send, Failed those that failed; Sources are the source ids of
	// the first FailedSources failed ones.
	Items, Failed int
	Sources       []string
	AcceptedAt    time.Time
	FailedAt      time.Time
}

// FailedSources is the most source ids of a FailedSend.
const FailedSources = 10

// FailedSends lists at most limit failed sends whose failure still counts, by acceptance, after the
// send of id after; uuid.Nil begins. project limits the list to one project; uuid.Nil is all.
func (q Queries) FailedSends(ctx context.Context, project uuid.UUID, limit int, after uuid.UUID) ([]FailedSend, error) {
	rows, err := q.DB.Query(ctx, `select s.project_id, s.id, s.failure_code, s.failure_message, s.item_count,
		s.standing, s.accepted_at, s.settled_at,
			coalesce((select array_agg(d.source_id order by i.ordinal) from (
				select * from datapoints.items i where i.ingestion_id = s.id and i.phase in ('failed', 'unindexed') and not i.moot
				order by i.ordinal limit $4
			) i join datapoints.data_points d on d.id = i.data_point), '{}')
		from datapoints.sends s`+waitingItems+`
		where s.failure_stands and not `+endedByDeletion+` and ($1::uuid is null or s.project_id = $1)
			and ($3::uuid is null or (s.accepted_at, s.id) > (select a.accepted_at, a.id from datapoints.sends a
				where a.id = $3))
		order by s.accepted_at, s.id limit $2`, pgarray.Optional(project), limit, pgarray.Optional(after), FailedSources)
	if err != nil {
		return nil, fmt.Errorf("list failed sends: %w", err)
	}
	sends, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s FailedSend, err error) {
		err = row.Scan(&s.ProjectID, &s.IngestionID, &s.Failure.Code, &s.Failure.Message, &s.Items, &s.Failed,
			&s.AcceptedAt, &s.FailedAt, &s.Sources)
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("list failed sends: %w", err)
	}
	return sends, nil
}
