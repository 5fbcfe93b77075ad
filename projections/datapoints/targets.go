package datapoints

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/work"
)

// Targets lists the data points of the items of a send that created a revision, in order, also
// those deleted since; for a batch that is not fanned out, of all items. If it finds no send, it
// waits until the projection has applied the head of the log, and looks again.
func (q Queries) Targets(
	ctx context.Context, project auth.Project, ingestionID uuid.UUID,
) (dataPoints []uuid.UUID, found bool, err error) {
	if dataPoints, found, err = q.targets(ctx, project, ingestionID); found || err != nil {
		return dataPoints, found, err
	}
	if err := q.CatchUp(ctx); err != nil {
		return nil, false, err
	}
	return q.targets(ctx, project, ingestionID)
}

// Pending reports which of the data points belong to a committed batch of the project whose fan-out
// is not complete, at the head of the log. An abandoned batch does not count.
func (q Queries) Pending(
	ctx context.Context, project auth.Project, dataPoints []uuid.UUID,
) (map[uuid.UUID]bool, error) {
	if err := q.CatchUp(ctx); err != nil {
		return nil, err
	}
	rows, err := q.DB.Query(ctx, `select unnest(b.data_points) from datapoints.batches b
		join datapoints.sends s on s.id = b.id
			where b.data_points && $2::uuid[] and s.project_id = $1 and s.final_phase <> 'failed'
		intersect select unnest($2::uuid[])`, project.ID, dataPoints)
	if err != nil {
		return nil, fmt.Errorf("look for pending data points: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("look for pending data points: %w", err)
	}
	pending := make(map[uuid.UUID]bool, len(found))
	for _, id := range found {
		pending[id] = true
	}
	return pending, nil
}

// NewestSends returns the live ones of the data points of a project, each with the send of its newest revision, at the
// position of the projection.
func (q Queries) NewestSends(
	ctx context.Context, project auth.Project, dataPoints []uuid.UUID,
) (map[uuid.UUID]uuid.UUID, error) {
	rows, err := q.DB.Query(ctx, `select id, ingestion_id from datapoints.data_points
		where id = any($2::uuid[]) and project_id = $1`, project.ID, dataPoints)
	if err != nil {
		return nil, fmt.Errorf("look for live data points: %w", err)
	}
	newest := make(map[uuid.UUID]uuid.UUID)
	var id, send uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&id, &send}, func() error { newest[id] = send; return nil })
	if err != nil {
		return nil, fmt.Errorf("look for live data points: %w", err)
	}
	return newest, nil
}

// FactsOf returns what outlives a data point whose own stream can no longer be read, with at most limit of its items
// that created a revision above after.
func (q Queries) FactsOf(ctx context.Context, dataPoint uuid.UUID, after, limit int) (found work.Facts, err error) {
	rows, err := q.DB.Query(ctx, `select i.ingestion_id, i.ordinal, s.item_count, s.request_id, s.accepted_at,
			case when i.batch then i.bytes else s.bytes end, case when i.batch then 0 else s.credit_tenths end, s.month,
			i.outcome, i.revision, i.historic, i.batch, s.searchable_at, i.project_id, i.deleted_at,
			coalesce(max(i.revision) filter (where not i.historic) over (), 0)
		from datapoints.items i join datapoints.sends s on s.id = i.ingestion_id
		where i.data_point = $1 and i.outcome not in ('unchanged', 'moved') and i.revision > $2
		order by i.revision limit $3`, dataPoint, after, limit)
	if err != nil {
		return found, fmt.Errorf("read the facts of a data point: %w", err)
	}
	found.Items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (f deletion.RetainedFact, err error) {
		var searchable, deleted *time.Time
		err = row.Scan(&f.IngestionID, &f.Ordinal, &f.Items, &f.RequestID, &f.AcceptedAt, &f.Bytes, &f.CreditTenths,
			&f.Month, &f.Outcome, &f.Revision, &f.Historic, &f.Batch, &searchable, &found.ProjectID, &deleted, &found.Newest)
		f.AcceptedAt = f.AcceptedAt.UTC()
		if searchable != nil {
			f.SearchableAt = searchable.UTC()
		}
		if deleted != nil {
			found.DeletedAt = deleted.UTC()
		}
		return f, err
	})
	if err != nil {
		return found, fmt.Errorf("read the facts of a data point: %w", err)
	}
	return found, nil
}

// Completed reports whether a send is completed although its own stream may record a failure, at
// the position of the projection: it was deleted, or a watermark ended it first. The reply to a
// deletion waits for the projection.
func (q Queries) Completed(
	ctx context.Context, project auth.Project, ingestionID uuid.UUID,
) (completed bool, err error) {
	err = q.DB.QueryRow(ctx, `select exists (select from datapoints.sends where id = $2 and project_id = $1
		and (deleted_at is not null or searchable_at is not null))`, project.ID, ingestionID).Scan(&completed)
	if err != nil {
		return false, fmt.Errorf("look for the end of a send: %w", err)
	}
	return completed, nil
}

// SearchableSince returns since when sends are searchable by a watermark, at the position of the
// projection.
func (q Queries) SearchableSince(ctx context.Context, sends []uuid.UUID) (map[uuid.UUID]time.Time, error) {
	rows, err := q.DB.Query(ctx, `select id, searchable_at from datapoints.sends
		where id = any($1::uuid[]) and searchable_at is not null`, sends)
	if err != nil {
		return nil, fmt.Errorf("read since when sends are searchable: %w", err)
	}
	since := make(map[uuid.UUID]time.Time)
	var id uuid.UUID
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		since[id] = at.UTC()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read since when sends are searchable: %w", err)
	}
	return since, nil
}

func (q Queries) targets(
	ctx context.Context, project auth.Project, ingestionID uuid.UUID,
) (dataPoints []uuid.UUID, found bool, err error) {
	rows, err := q.DB.Query(ctx, `select coalesce(b.data_points,
			(select array_agg(i.data_point order by i.ordinal) from datapoints.items i
				where i.ingestion_id = s.id and i.outcome not in ('unchanged', 'moved')),
			'{}')
		from datapoints.sends s left join datapoints.batches b on b.id = s.id
		where s.id = $2 and s.project_id = $1`, project.ID, ingestionID)
	if err != nil {
		return nil, false, fmt.Errorf("read targets: %w", err)
	}
	lists, err := pgx.CollectRows(rows, pgx.RowTo[[]uuid.UUID])
	if err != nil {
		return nil, false, fmt.Errorf("read targets: %w", err)
	}
	if len(lists) == 0 {
		return nil, false, nil
	}
	return lists[0], true, nil
}

// Sent reports which of the data points were ever sent, also deleted and erased ones, at the
// position of the projection.
func (q Queries) Sent(ctx context.Context, dataPoints []uuid.UUID) (map[uuid.UUID]struct{}, error) {
	// Items outlive their data point. If the data point was deleted before its batch was fanned
	// out, its item is added only then, so look in erasures, too. The lateral query with a limit
	// reads one index entry for each id.
	rows, err := q.DB.Query(ctx, `select k.id from unnest($1::uuid[]) k (id)
		cross join lateral ((select from datapoints.items i where i.data_point = k.id and i.outcome not in ('unchanged',
			'moved') limit 1)
			union all (select from datapoints.erasures e where e.data_point = k.id)) i`, dataPoints)
	if err != nil {
		return nil, fmt.Errorf("look for data points: %w", err)
	}
	sent := make(map[uuid.UUID]struct{})
	var id uuid.UUID
	if _, err = pgx.ForEachRow(rows, []any{&id}, func() error { sent[id] = struct{}{}; return nil }); err != nil {
		return nil, fmt.Errorf("look for data points: %w", err)
	}
	return sent, nil
}
