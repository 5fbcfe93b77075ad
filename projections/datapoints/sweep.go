package datapoints

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/work"
)

// UnreferencedBlobs lists at most limit blobs that may be swept at a time: blobs without a
// reference at their deadline, and blobs that can no longer be referred to. It leaves out what the
// fan-out of a batch may still refer to. A stage with text of a data point that is being erased
// counts from deadline early on.
func (q Queries) UnreferencedBlobs(ctx context.Context, at, early time.Time, limit int) ([]work.Blob, error) {
	rows, err := q.DB.Query(ctx, `select b.project_id, b.stream, b.owner, b.deadline, b.send is not null
		from datapoints.blobs b left join datapoints.sends s on s.id = b.send
		where not b.referred and case when b.send is null
			then b.fanned_out
				or b.deadline <= $1 and not exists (select from datapoints.batches o where b.owner = any(o.data_points))
				or exists (select from datapoints.sends o where o.id = b.owner)
				or exists (select from datapoints.erasures e where e.data_point = b.owner and e.facts_kept)
				or exists (select from datapoints.items i where i.data_point = b.owner and i.outcome not in ('unchanged',
					'moved') and i.deleted_at is not null)
				or b.deadline <= $3 and exists (select from datapoints.erasures e where e.data_point = any(b.holds))
			else s.fanned_out or s.deleted_at is not null end
		order by b.deadline, b.stream limit $2`, at, limit, early)
	if err != nil {
		return nil, fmt.Errorf("list unreferenced blobs: %w", err)
	}
	blobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b work.Blob, err error) {
		err = row.Scan(&b.ProjectID, &b.Stream, &b.Owner, &b.Deadline, &b.Stage)
		return b, err
	})
	if err != nil {
		return nil, fmt.Errorf("list unreferenced blobs: %w", err)
	}
	return blobs, nil
}

// BlobsOf names the blobs with text of the data points: their own, and stages that are no longer
// needed.
func (q Queries) BlobsOf(ctx context.Context, dataPoints []uuid.UUID) ([]string, error) {
	rows, err := q.DB.Query(ctx, `select stream from datapoints.blobs where owner = any($1::uuid[])
		union select b.stream from datapoints.blobs b join datapoints.sends s on s.id = b.send
			where not b.referred and b.holds && $1::uuid[] and (s.fanned_out or s.deleted_at is not null)
		order by stream`, dataPoints)
	if err != nil {
		return nil, fmt.Errorf("list blobs of data points: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list blobs of data points: %w", err)
	}
	return names, nil
}

// BatchesOf lists the batches that are not fanned out and contain any of the data points: their
// stages hold text of them.
func (q Queries) BatchesOf(ctx context.Context, dataPoints []uuid.UUID) ([]work.Batch, error) {
	rows, err := q.DB.Query(ctx, `select b.id, coalesce((select min(o.stream) from datapoints.blobs o
		where o.send = b.id), ''), s.final_phase = 'failed',
			array(select unnest(b.data_points) intersect select unnest($1::uuid[]))
		from datapoints.batches b join datapoints.sends s on s.id = b.id where b.data_points && $1::uuid[]
			order by b.id`, dataPoints)
	if err != nil {
		return nil, fmt.Errorf("list batches of data points: %w", err)
	}
	batches, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b work.Batch, err error) {
		err = row.Scan(&b.IngestionID, &b.Stage, &b.Abandoned, &b.DataPoints)
		return b, err
	})
	if err != nil {
		return nil, fmt.Errorf("list batches of data points: %w", err)
	}
	return batches, nil
}

// Copied reports which data points or identities may have a copy in an unreferenced stage: that of
// a send or bulk write that was not stored, or not yet. projects[n] is the project of ids[n].
func (q Queries) Copied(ctx context.Context, projects, ids []uuid.UUID) (map[uuid.UUID]bool, error) {
	rows, err := q.DB.Query(ctx, `select distinct k.id from unnest($1::uuid[], $2::uuid[]) k (project_id, id)
		join datapoints.blobs b on b.project_id = k.project_id and not b.referred and b.send is null and k.id = any(b.holds)`,
		projects, ids)
	if err != nil {
		return nil, fmt.Errorf("look for copies in stages: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("look for copies in stages: %w", err)
	}
	copied := make(map[uuid.UUID]bool, len(found))
	for _, id := range found {
		copied[id] = true
	}
	return copied, nil
}

// Open counts the open work of the finisher.
func (q Queries) Open(ctx context.Context) (open work.Open, err error) {
	err = q.DB.QueryRow(ctx, `select
			(select count(*) from datapoints.sends where not fanned_out and final_phase <> 'failed') + (select count(*)
				from datapoints.deletions where not fanned_out),
			(select count(*) from datapoints.deletions where not cleaned), (select count(*) from datapoints.erasures),
				count(*), max(deadline)
		from datapoints.blobs where not referred and send is null`).
		Scan(&open.FanOuts, &open.Deletions, &open.DataPoints, &open.Blobs, &open.Until)
	if err != nil {
		return open, fmt.Errorf("count open work: %w", err)
	}
	return open, nil
}

// FollowedUp returns which of the data points have text that a follow-up of their deletion has yet to delete,
// in this projection or in that of memories.
func (q Queries) FollowedUp(ctx context.Context, dataPoints []uuid.UUID) (map[uuid.UUID]bool, error) {
	rows, err := q.DB.Query(ctx, `select key from datapoints.follow_ups where key = any($1::uuid[])
		union select key from memories.follow_ups where key = any($1::uuid[])`, dataPoints)
	if err != nil {
		return nil, fmt.Errorf("look for follow-ups of deletions: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("look for follow-ups of deletions: %w", err)
	}
	followed := make(map[uuid.UUID]bool, len(found))
	for _, id := range found {
		followed[id] = true
	}
	return followed, nil
}

// HasFollowUps reports whether any data point has such text.
func (q Queries) HasFollowUps(ctx context.Context) (left bool, err error) {
	err = q.DB.QueryRow(ctx, `select exists (select from datapoints.follow_ups) or exists (select from memories.follow_ups)`).
		Scan(&left)
	if err != nil {
		return false, fmt.Errorf("look for follow-ups: %w", err)
	}
	return left, nil
}
