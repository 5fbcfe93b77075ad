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

// claim takes, of each project that has something to do, its oldest items as far as they may be worked on, and of those the
// first of every project before the second of any. The projects are found by stepping through the index of what is to be done.
//
// Of each project only the oldest items are looked at, so many as the window holds: a data point of which very many revisions
// are open would otherwise be walked through at each claim.
//
// The lease of an item is taken only where it has still run out when its row is locked: of two that claim at the same time,
// one gets it.
const claim = claimBegin + claimEnd

// claimFurther is claim for a bigger window, in which what is leased does not count: it may be most of what is open.
const claimFurther = claimBegin + ` and not exists (select from ops.leases l where l.data_point = i.data_point and l.until > $3)` + claimEnd

const (
	claimBegin = `
with recursive projects (id) as (
	(select project_id from datapoints.items where phase in ('queued', 'processing') order by project_id limit 1)
	union all
	select (select i.project_id from datapoints.items i where i.phase in ('queued', 'processing') and i.project_id > p.id
		order by i.project_id limit 1)
	from projects p where p.id is not null
), oldest as (
	select i.* from projects p cross join lateral (
		select * from datapoints.items i where i.project_id = p.id and i.phase in ('queued', 'processing')`
	claimEnd = `
		order by i.position, i.ingestion_id, i.ordinal limit $5
	) i
	where p.id is not null
), lowest as (
	select distinct on (data_point) * from oldest order by data_point, revision
), due as (
	select l.*, row_number() over (partition by l.project_id order by l.position, l.ingestion_id, l.ordinal) as turn
	from lowest l
	where not exists (select from ops.leases h where h.data_point = l.data_point and h.until > $3)
		and not exists (select from datapoints.items o where o.data_point = l.data_point and o.revision < l.revision
			and o.phase in ('queued', 'processing'))
), picked as (
	select * from due order by turn, position, ingestion_id, ordinal limit $1
), taken as (
	insert into ops.leases as l (data_point, holder, until) select data_point, $2, $4 from picked
	on conflict (data_point) do update set holder = excluded.holder, until = excluded.until where l.until <= $3
	returning l.data_point, l.xmax <> 0 as suspect -- where a row was there, its xmax is this transaction
)
select p.project_id, p.ingestion_id, p.data_point, p.ordinal, p.revision, p.attempt, s.round, p.phase, p.position, taken.suspect,
	r.content, r.metadata, r.label, r.author, r.occurred_at
from picked p join taken using (data_point) join datapoints.sends s on s.id = p.ingestion_id
left join datapoints.revisions r on r.data_point = p.data_point and r.number = p.revision and r.metadata_blob is null
	and octet_length(r.content) <= $6 and coalesce(octet_length(r.metadata), 0) <= $6
order by p.turn, p.position, p.ingestion_id, p.ordinal`
)

const (
	// claimWindow is how many of the oldest items of a project are looked at for each that is asked for, and claimGrowth by how
	// much that grows where none of them may be worked on, until all were looked at.
	claimWindow = 2
	claimGrowth = 16
	// claimText is how many bytes of content, and of metadata, are handed out with an item.
	claimText = 16 << 10
)

// Claim takes at most limit items to derive for a holder, until a time, oldest first and fair between projects: those that are
// queued, or that a worker began and whose lease has run out by now, and of each data point the lowest open revision only.
// Small texts come with their items.
func (q Queries) Claim(ctx context.Context, holder string, limit int, now, until time.Time) ([]todo.Item, error) {
	statement := claim
	for window := limit * claimWindow; ; window *= claimGrowth {
		items, err := q.claim(ctx, statement, holder, limit, now, until, window)
		if len(items) > 0 || err != nil {
			return items, err
		}
		more, err := q.open(ctx, window)
		if !more || err != nil {
			return nil, err
		}
		statement = claimFurther
	}
}

// open reports whether more items than so many are open.
func (q Queries) open(ctx context.Context, than int) (more bool, err error) {
	err = q.DB.QueryRow(ctx, `select exists (select from datapoints.items where phase in ('queued', 'processing') offset $1)`, than).Scan(&more)
	if err != nil {
		return false, fmt.Errorf("count open items: %w", err)
	}
	return more, nil
}

// claim claims within the oldest items of each project.
func (q Queries) claim(ctx context.Context, statement, holder string, limit int, now, until time.Time, window int) (items []todo.Item, err error) {
	b := &pgx.Batch{}
	// How many projects the statement steps through cannot be estimated, and compiling it for many takes far longer than running
	// it. A lease is a hint: it need not wait for the disk.
	b.Queue(`select set_config('jit', 'off', true), set_config('synchronous_commit', 'off', true)`)
	b.Queue(statement, limit, holder, now, until, window, claimText).Query(func(rows pgx.Rows) (err error) {
		items, err = pgx.CollectRows(rows, scanClaimed)
		return err
	})
	if err := q.DB.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("claim items: %w", err)
	}
	return items, nil
}

func scanClaimed(row pgx.CollectableRow) (i todo.Item, err error) {
	var (
		content, metadata []byte
		label, author     *string
		occurredAt        *time.Time
	)
	err = row.Scan((*[16]byte)(&i.ProjectID), (*[16]byte)(&i.IngestionID), (*[16]byte)(&i.DataPoint), &i.Ordinal, &i.Revision,
		&i.Attempt, &i.Round, &i.Phase, (*uint64)(&i.Position), &i.Suspect, &content, &metadata, &label, &author, &occurredAt)
	if content != nil {
		i.Text = &todo.Text{Content: string(content), Metadata: metadata, OccurredAt: occurredAt.UTC()}
		if label != nil {
			i.Text.Label = *label
		}
		if author != nil {
			i.Text.Author = *author
		}
	}
	return i, err
}

// Extend moves the end of leases that the holder still has: further out while it works, or to when an item may be tried again.
func (q Queries) Extend(ctx context.Context, holder string, dataPoints []uuid.UUID, until time.Time) error {
	_, err := q.DB.Exec(ctx, `update ops.leases set until = $3 where holder = $1 and data_point = any($2::uuid[])`, holder, idsOf(dataPoints), until)
	if err != nil {
		return fmt.Errorf("extend leases: %w", err)
	}
	return nil
}

// Release gives leases of the holder back.
func (q Queries) Release(ctx context.Context, holder string, dataPoints []uuid.UUID) error {
	b := &pgx.Batch{}
	b.Queue(`select set_config('synchronous_commit', 'off', true)`)
	b.Queue(`delete from ops.leases where holder = $1 and data_point = any($2::uuid[])`, holder, idsOf(dataPoints))
	if err := q.DB.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("release leases: %w", err)
	}
	return nil
}

// AbandonLeases ends all leases. It is for the start of a deployment of one process: whoever held them is gone, perhaps because of
// one of their items.
func (q Queries) AbandonLeases(ctx context.Context, now time.Time) error {
	if _, err := q.DB.Exec(ctx, `update ops.leases set until = $1 where until > $1`, now); err != nil {
		return fmt.Errorf("abandon leases: %w", err)
	}
	return nil
}

// ForgetLeases removes leases that ran out and whose data point has nothing open.
func (q Queries) ForgetLeases(ctx context.Context, now time.Time) error {
	_, err := q.DB.Exec(ctx, `delete from ops.leases l where l.until <= $1
		and not exists (select from datapoints.items i where i.data_point = l.data_point and i.phase in ('queued', 'processing'))`, now)
	if err != nil {
		return fmt.Errorf("forget leases: %w", err)
	}
	return nil
}

func idsOf(list []uuid.UUID) [][16]byte {
	return unnest.IDs(list, func(id uuid.UUID) uuid.UUID { return id })
}
