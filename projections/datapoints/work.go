package datapoints

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/work"
)

// Searchable returns the position up to which a watermark ends about limit of the oldest sends that
// were captured after a position and up to upTo. It is 0 if none waits.
func (q Queries) Searchable(
	ctx context.Context, after, upTo eventstore.Position, limit int,
) (position eventstore.Position, err error) {
	err = q.DB.QueryRow(ctx, `select coalesce(max(position), 0) from (select position from datapoints.sends
		where phase = 'captured' and failed = 0 and deleted = 0 and position > $1
			and position <= $2
		order by position limit $3) s`, int64(after), int64(upTo), limit).Scan((*uint64)(&position))
	if err != nil {
		return 0, fmt.Errorf("look for searchable sends: %w", err)
	}
	return position, nil
}

// Unsearchable lists at most limit sends that were captured after a position and wait for a
// watermark, oldest first.
func (q Queries) Unsearchable(ctx context.Context, after eventstore.Position, limit int) ([]work.Send, error) {
	rows, err := q.DB.Query(ctx, `select project_id, id, position, round, null, null from datapoints.sends
		where phase = 'captured' and failed = 0 and deleted = 0 and position > $1
		order by position, id limit $2`, int64(after), limit)
	return sendsOf(rows, err)
}

// Confirmable lists at most limit sends, oldest first, whose items have all ended and which no
// watermark ends, since an item failed or was deleted.
func (q Queries) Confirmable(ctx context.Context, limit int) ([]work.Send, error) {
	rows, err := q.DB.Query(ctx, `select s.project_id, s.id, s.position, s.round, f.failure_code, f.failure_message
		from (
			select * from datapoints.sends where phase = 'captured' and (failed > 0 or deleted > 0)
			order by position, id limit $1
		) s
		left join lateral (
			select i.failure_code, i.failure_message from datapoints.items i
			where s.failed > 0 and i.ingestion_id = s.id and i.phase = 'failed' order by i.position, i.ordinal limit 1
		) f on true
		order by s.position, s.id`, limit)
	return sendsOf(rows, err)
}

func sendsOf(rows pgx.Rows, err error) ([]work.Send, error) {
	if err != nil {
		return nil, fmt.Errorf("list confirmable sends: %w", err)
	}
	sends, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s work.Send, err error) {
		var code, message *string
		err = row.Scan(&s.ProjectID, &s.IngestionID, (*uint64)(&s.Position), &s.Round, &code, &message)
		if code != nil && message != nil {
			s.Failure = &work.Failure{Code: *code, Message: *message}
		}
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("list confirmable sends: %w", err)
	}
	return sends, nil
}

// PendingFanOuts lists at most limit committed deletions and batches that are not fanned out,
// deletions first, each oldest first. Abandoned batches are left out.
func (q Queries) PendingFanOuts(ctx context.Context, limit int) ([]work.Operation, error) {
	rows, err := q.DB.Query(ctx, `(select project_id, $2::text, id, accepted_at, position from datapoints.sends
		where not fanned_out and final_phase <> 'failed' order by position limit $1)
		union all (select project_id, $3::text, id, accepted_at, position from datapoints.deletions where not fanned_out
			order by position limit $1)
		order by 2, position limit $1`, limit, stream.Ingestion, stream.Deletion)
	if err != nil {
		return nil, fmt.Errorf("list open fan-outs: %w", err)
	}
	operations, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o work.Operation, err error) {
		err = row.Scan(&o.ProjectID, &o.Category, &o.ID, &o.AcceptedAt, (*uint64)(&o.Position))
		return o, err
	})
	if err != nil {
		return nil, fmt.Errorf("list open fan-outs: %w", err)
	}
	return operations, nil
}

// Erasures lists at most limit data points of fanned-out deletions whose facts are not retained
// yet, oldest first.
func (q Queries) Erasures(ctx context.Context, limit int) ([]work.Erasure, error) {
	rows, err := q.DB.Query(ctx, `select e.project_id, e.data_point, e.deletion_id, e.position
		from datapoints.erasures e join datapoints.deletions d on d.id = e.deletion_id and d.fanned_out
		where not e.facts_kept order by e.position, e.data_point limit $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("list erasures: %w", err)
	}
	erasures, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e work.Erasure, err error) {
		err = row.Scan(&e.ProjectID, &e.DataPoint, &e.DeletionID, (*uint64)(&e.Position))
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("list erasures: %w", err)
	}
	return erasures, nil
}

// CleanableDeletions lists at most limit fanned-out deletions that are not cleaned and whose facts
// are all retained, oldest first, after a deletion (nil begins).
func (q Queries) CleanableDeletions(ctx context.Context, after *work.Deletion, limit int) ([]work.Deletion, error) {
	position, id := int64(0), uuid.Nil
	if after != nil {
		position, id = int64(after.Position), after.ID
	}
	rows, err := q.DB.Query(ctx, `select project_id, id, accepted_at, position from datapoints.deletions d
		where not cleaned and fanned_out and (position, id) > ($2, $3)
			and not exists (select from datapoints.erasures e where e.deletion_id = d.id and not e.facts_kept)
		order by position, id limit $1`, limit, position, id)
	if err != nil {
		return nil, fmt.Errorf("list deletions to clean: %w", err)
	}
	deletions, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d work.Deletion, err error) {
		err = row.Scan(&d.ProjectID, &d.ID, &d.AcceptedAt, (*uint64)(&d.Position))
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("list deletions to clean: %w", err)
	}
	return deletions, nil
}

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

// Counts are the counters of a project.
type Counts struct {
	// Live counts the live data points, Memories the memories of their newest captured revisions.
	Live, Memories int64
	// Ingested counts the items of the month that created a revision, also of data points deleted
	// since, and CreditTenths their price in tenths of a credit. A batch that is not fanned out
	// counts as priced at its commit.
	Ingested, CreditTenths int64
}

// Counts reads the counters of projects, for a month as in "2026-11". A project without any is
// absent.
func (Queries) Counts(
	ctx context.Context, db replica.Snapshot, projects []uuid.UUID, month string,
) (map[uuid.UUID]Counts, error) {
	rows, err := db.Query(ctx, `
		select p.id,
			coalesce(s.live, 0), coalesce(s.memories, 0), coalesce(u.ingestions, 0), coalesce(u.credit_tenths, 0)
		from unnest($1::uuid[]) as p (id) left join datapoints.month_usage u on u.project_id = p.id and u.month = $2
			left join lateral (select sum(live)::bigint as live, sum(memories)::bigint as memories from datapoints.scopes s
				where s.project_id = p.id) s on true`, projects, month)
	if err != nil {
		return nil, fmt.Errorf("count projects: %w", err)
	}
	counts := make(map[uuid.UUID]Counts, len(projects))
	var id uuid.UUID
	var c Counts
	_, err = pgx.ForEachRow(rows, []any{&id, &c.Live, &c.Memories, &c.Ingested, &c.CreditTenths}, func() error {
		counts[id] = c
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count projects: %w", err)
	}
	return counts, nil
}

// ProjectOf returns the project of a send of any project.
func (q Queries) ProjectOf(ctx context.Context, ingestionID uuid.UUID) (project uuid.UUID, found bool, err error) {
	err = q.DB.QueryRow(ctx, `select project_id from datapoints.sends where id = $1`, ingestionID).Scan(&project)
	if errors.Is(err, pgx.ErrNoRows) {
		return uuid.Nil, false, nil
	}
	if err != nil {
		return uuid.Nil, false, fmt.Errorf("find the project of a send: %w", err)
	}
	return project, true, nil
}

// CountAll counts the live data points of all projects, up to the checkpoint of the projection.
func (q Queries) CountAll(ctx context.Context) (n int64, err error) {
	err = q.DB.QueryRow(ctx, `select coalesce(sum(live), 0)::bigint from datapoints.scopes`).Scan(&n)
	return n, err
}
