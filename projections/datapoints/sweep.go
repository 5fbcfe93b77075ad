package datapoints

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/todo"
	"github.com/annals-project/annals/internal/unnest"
)

// LooseBlobs lists at most limit blobs that may be swept at a time: those that nothing referred to by their deadline, and
// the stages that are of no more use. What a batch may still refer to when it is fanned out is not among them.
func (q Queries) LooseBlobs(ctx context.Context, at time.Time, limit int) ([]todo.Blob, error) {
	rows, err := q.DB.Query(ctx, `select b.project_id, b.stream, b.owner, b.deadline, b.send is not null
		from datapoints.blobs b left join datapoints.sends s on s.id = b.send
		where not b.referred and case when b.send is null
			then b.deadline <= $1 and not exists (select from datapoints.batches o where b.owner = any(o.data_points))
			else s.fanned_out or s.deleted_at is not null end
		order by b.deadline, b.stream limit $2`, at, limit)
	if err != nil {
		return nil, fmt.Errorf("list loose blobs: %w", err)
	}
	blobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b todo.Blob, err error) {
		err = row.Scan((*[16]byte)(&b.ProjectID), &b.Stream, (*[16]byte)(&b.Owner), &b.Deadline, &b.Stage)
		return b, err
	})
	if err != nil {
		return nil, fmt.Errorf("list loose blobs: %w", err)
	}
	return blobs, nil
}

// BlobsOf names the blobs of data points that are not ended yet.
func (q Queries) BlobsOf(ctx context.Context, owners []uuid.UUID) ([]string, error) {
	rows, err := q.DB.Query(ctx, `select stream from datapoints.blobs where owner = any($1::uuid[]) order by stream`, idsOf(owners))
	if err != nil {
		return nil, fmt.Errorf("list blobs of data points: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list blobs of data points: %w", err)
	}
	return names, nil
}

// BatchesOf lists the batches that are not fanned out and bring any of the data points: their stages hold text of them.
func (q Queries) BatchesOf(ctx context.Context, dataPoints []uuid.UUID) ([]todo.Batch, error) {
	rows, err := q.DB.Query(ctx, `select b.id, coalesce((select min(o.stream) from datapoints.blobs o where o.send = b.id), ''), s.verdict = 'failed',
			array(select unnest(b.data_points) intersect select unnest($1::uuid[]))
		from datapoints.batches b join datapoints.sends s on s.id = b.id where b.data_points && $1::uuid[] order by b.id`, idsOf(dataPoints))
	if err != nil {
		return nil, fmt.Errorf("list batches of data points: %w", err)
	}
	batches, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b todo.Batch, err error) {
		err = row.Scan((*[16]byte)(&b.IngestionID), &b.Stage, &b.Lost, &b.DataPoints)
		return b, err
	})
	if err != nil {
		return nil, fmt.Errorf("list batches of data points: %w", err)
	}
	return batches, nil
}

// Unanswered tells which of the deletions must wait with their end: while a blob of their project that was begun before them
// belongs to nothing, it may be a copy of what they took, of a send that was never stored.
func (q Queries) Unanswered(ctx context.Context, deletions []todo.Deletion) (map[uuid.UUID]bool, error) {
	rows, err := q.DB.Query(ctx, `select d.id from unnest($1::uuid[], $2::uuid[], $3::bigint[]) d (id, project_id, position)
		where exists (select from datapoints.blobs b where not b.referred and b.send is null and b.project_id = d.project_id and b.position < d.position)`,
		unnest.IDs(deletions, func(d todo.Deletion) uuid.UUID { return d.ID }),
		unnest.IDs(deletions, func(d todo.Deletion) uuid.UUID { return d.ProjectID }),
		unnest.Column(deletions, func(d todo.Deletion) int64 { return int64(d.Position) }))
	if err != nil {
		return nil, fmt.Errorf("look for loose blobs before deletions: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("look for loose blobs before deletions: %w", err)
	}
	waiting := make(map[uuid.UUID]bool, len(found))
	for _, id := range found {
		waiting[id] = true
	}
	return waiting, nil
}

// Open counts what is before the finisher.
func (q Queries) Open(ctx context.Context) (open todo.Open, err error) {
	err = q.DB.QueryRow(ctx, `select
			(select count(*) from datapoints.sends where not fanned_out and verdict <> 'failed') + (select count(*) from datapoints.deletions where not fanned_out),
			(select count(*) from datapoints.deletions where not cleaned), (select count(*) from datapoints.erasures), count(*), max(deadline)
		from datapoints.blobs where not referred and send is null`).
		Scan(&open.FanOuts, &open.Deletions, &open.Erasures, &open.Blobs, &open.Until)
	if err != nil {
		return open, fmt.Errorf("count open work: %w", err)
	}
	return open, nil
}
