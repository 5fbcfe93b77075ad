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
// The lease of an item is taken only where it has still run out when its row is locked: of two that claim at the same time,
// one gets it.
const claim = `
with recursive projects (id) as (
	(select project_id from datapoints.items where phase in ('queued', 'processing') order by project_id limit 1)
	union all
	select (select i.project_id from datapoints.items i where i.phase in ('queued', 'processing') and i.project_id > p.id
		order by i.project_id limit 1)
	from projects p where p.id is not null
), due as (
	select i.*, row_number() over (partition by i.project_id order by i.position, i.ingestion_id, i.ordinal) as turn
	from projects p cross join lateral (
		select * from datapoints.items i
		where i.project_id = p.id and i.phase in ('queued', 'processing')
			and not exists (select from ops.leases l where l.data_point = i.data_point and l.until > $3)
			and not exists (select from datapoints.items o where o.data_point = i.data_point and o.revision < i.revision
				and o.phase in ('queued', 'processing'))
		order by i.position, i.ingestion_id, i.ordinal limit $1
	) i
	where p.id is not null
), picked as (
	select * from due order by turn, position, ingestion_id, ordinal limit $1
), taken as (
	insert into ops.leases as l (data_point, holder, until) select data_point, $2, $4 from picked
	on conflict (data_point) do update set holder = excluded.holder, until = excluded.until where l.until <= $3
	returning data_point
)
select p.project_id, p.ingestion_id, p.data_point, p.ordinal, p.revision, p.attempt, s.round, p.phase, p.position
from picked p join taken using (data_point) join datapoints.sends s on s.id = p.ingestion_id
order by p.turn, p.position, p.ingestion_id, p.ordinal`

// Claim takes at most limit items to derive for a holder, until a time, oldest first and fair between projects: those that are
// queued, or that a worker began and whose lease has run out by now, and of each data point the lowest open revision only.
func (q Queries) Claim(ctx context.Context, holder string, limit int, now, until time.Time) ([]todo.Item, error) {
	var items []todo.Item
	b := &pgx.Batch{}
	// How many projects the statement steps through cannot be estimated, and compiling it for many takes far longer than running it.
	b.Queue(`select set_config('jit', 'off', true)`)
	b.Queue(claim, limit, holder, now, until).Query(func(rows pgx.Rows) (err error) {
		items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (i todo.Item, err error) {
			err = row.Scan((*[16]byte)(&i.ProjectID), (*[16]byte)(&i.IngestionID), (*[16]byte)(&i.DataPoint), &i.Ordinal, &i.Revision,
				&i.Attempt, &i.Round, &i.Phase, (*uint64)(&i.Position))
			return i, err
		})
		return err
	})
	if err := q.DB.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("claim items: %w", err)
	}
	return items, nil
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
	_, err := q.DB.Exec(ctx, `delete from ops.leases where holder = $1 and data_point = any($2::uuid[])`, holder, idsOf(dataPoints))
	if err != nil {
		return fmt.Errorf("release leases: %w", err)
	}
	return nil
}

// DropLeases gives all leases back. It is for the start of a deployment of one process: whoever held them is gone.
func (q Queries) DropLeases(ctx context.Context) error {
	if _, err := q.DB.Exec(ctx, `delete from ops.leases`); err != nil {
		return fmt.Errorf("drop leases: %w", err)
	}
	return nil
}

func idsOf(list []uuid.UUID) [][16]byte {
	return unnest.IDs(list, func(id uuid.UUID) uuid.UUID { return id })
}
