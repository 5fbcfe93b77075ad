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
		s.open_failures, s.accepted_at, s.settled_at,
			coalesce((select array_agg(d.source_id order by i.ordinal) from (
				select * from datapoints.items i where i.ingestion_id = s.id and i.phase in ('failed', 'unindexed') and not i.overtaken
				order by i.ordinal limit $4
			) i join datapoints.data_points d on d.id = i.data_point), '{}')
		from datapoints.sends s`+waitingItems+`
		where s.failure_open and not `+endedByDeletion+` and ($1::uuid is null or s.project_id = $1)
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

// RecentFailures are the sends that failed after a time and whose failure still counts.
type RecentFailures struct {
	// Sends is their number. More is true if only some of them were counted.
	Sends  int
	More   bool
	Newest Failure
}

// maxRecent is how many failed sends RecentFailures reads, those that were accepted last.
const maxRecent = 1000

// RecentFailures counts the sends that failed after a time and whose failure still counts, among the last maxRecent
// failed ones by their acceptance.
func (q Queries) RecentFailures(ctx context.Context, after time.Time) (r RecentFailures, err error) {
	var code, message *string
	var read int
	err = q.DB.QueryRow(ctx, `with newest as materialized (
			select failure_code, failure_message, settled_at from datapoints.sends
			where failure_open order by accepted_at desc, id desc limit $2
		), recent as (select * from newest where settled_at > $1)
		select (select count(*) from newest), (select count(*) from recent),
			(select failure_code from recent order by settled_at desc limit 1),
			(select failure_message from recent order by settled_at desc limit 1)`, after, maxRecent).
		Scan(&read, &r.Sends, &code, &message)
	if err != nil {
		return RecentFailures{}, fmt.Errorf("count failed sends: %w", err)
	}
	r.More = read == maxRecent && r.Sends == read
	if code != nil && message != nil {
		r.Newest = Failure{Code: *code, Message: *message}
	}
	return r, nil
}

// OldestErasure returns when the oldest deletion that is not cleaned was accepted, zero if there is none.
func (q Queries) OldestErasure(ctx context.Context) (time.Time, error) {
	var at *time.Time
	err := q.DB.QueryRow(ctx, `select (select accepted_at from datapoints.deletions where not cleaned
		order by position limit 1)`).Scan(&at)
	if err != nil || at == nil {
		return time.Time{}, err
	}
	return at.UTC(), nil
}
