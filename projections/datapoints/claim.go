package datapoints

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/todo"
	"github.com/annals-project/annals/internal/unnest"
)

// ring lists at most $3 projects with open items, in the order of their ids, after $1 and up to $2.
// It steps through an index, so its cost does not depend on the number of items.
const ring = `
with recursive projects (id, n) as (
	(select project_id, 1 from datapoints.items where phase in ('queued', 'processing')
		and project_id > $1 and project_id <= $2 order by project_id limit 1)
	union all
	select (select i.project_id from datapoints.items i where i.phase in ('queued', 'processing')
		and i.project_id > p.id and i.project_id <= $2 order by i.project_id limit 1), p.n + 1
	from projects p where p.id is not null and p.n < $3
)
select id from projects where id is not null`

// claim takes the oldest items of each given project that may be derived, up to a window per
// project. The first item of every project comes before the second of any.
//
// It reads only so many of the oldest items of each project. Otherwise each claim would read every
// open revision of a data point that has very many.
//
// A lease is taken only if the earlier one is still over when its row is locked: of two concurrent
// claims, one gets the item.
const claim = `
with due as (
	select distinct on (i.data_point) i.*, p.place
	from unnest($7::uuid[]) with ordinality as p (id, place) cross join lateral (
		select o.* from (
			select * from datapoints.items o where o.project_id = p.id and o.phase in ('queued', 'processing')
			order by o.position, o.ingestion_id, o.ordinal limit $8
		) o
		where coalesce((select l.until <= $3 from ops.leases l where l.data_point = o.data_point), true)
			and o.revision = (select min(b.revision) from datapoints.items b where b.data_point = o.data_point
				and b.phase in ('queued', 'processing'))
		order by o.position, o.ingestion_id, o.ordinal limit $5
	) i
	order by i.data_point
), numbered as (
	select d.*, row_number() over (partition by d.project_id order by d.position, d.ingestion_id, d.ordinal) as round_robin
	from due d
), picked as (
	select * from numbered order by round_robin, place limit $1
), taken as (
	insert into ops.leases as l (data_point, holder, until) select data_point, $2, $4 from picked
	on conflict (data_point) do update set holder = excluded.holder, until = excluded.until where l.until <= $3
	returning l.data_point, l.xmax <> 0 as suspect -- where a row was there, its xmax is this transaction
)
select p.project_id, p.ingestion_id, p.data_point, p.ordinal, p.revision, p.attempt, s.round, p.phase, p.position,
	taken.suspect, p.round_robin, r.content, r.metadata, r.label, r.author, r.occurred_at
from picked p join taken using (data_point) join datapoints.sends s on s.id = p.ingestion_id
left join datapoints.revisions r on r.data_point = p.data_point and r.number = p.revision and r.metadata_blob is null
	and octet_length(r.content) <= $6 and coalesce(octet_length(r.metadata), 0) <= $6
order by p.round_robin, p.position, p.ingestion_id, p.ordinal`

const (
	// leastWindow is how many items of a project a claim may take, even with many projects.
	leastWindow = 2
	// claimWalk is how many of the oldest items of a project a claim reads. If none of them may be
	// derived, the next step reads claimGrowth times as many, until it has read all.
	claimWalk   = 1024
	claimGrowth = 16
	// ringGrowth is the factor by which a claim reads more projects while it is not full,
	// mostProjects the most per step, and mostSteps the most steps.
	ringGrowth   = 16
	mostProjects = 4096
	mostSteps    = 4
	// claimText is how many bytes of content, and of metadata, are handed out with an item.
	claimText = 16 << 10
)

// Claim leases items to derive, oldest first and fair between projects: items that are queued, or
// that a worker began and whose lease has run out, and of each data point only the lowest open
// revision. Small texts come with their items. The projects take turns: the next claim begins after
// next.
func (q Queries) Claim(ctx context.Context, c todo.Claim) (items []todo.Item, next uuid.UUID, err error) {
	for walk := claimWalk; ; walk *= claimGrowth {
		items, next, err = q.claimAround(ctx, c, walk)
		if len(items) > 0 || err != nil {
			return items, next, err
		}
		more, err := q.open(ctx, walk)
		if !more || err != nil {
			return nil, next, err
		}
	}
}

// open reports whether a project has more than so many open items.
func (q Queries) open(ctx context.Context, than int) (more bool, err error) {
	err = q.DB.QueryRow(ctx, `select exists (select from datapoints.items where phase in ('queued', 'processing')
		group by project_id having count(*) > $1)`, than).Scan(&more)
	if err != nil {
		return false, fmt.Errorf("count open items: %w", err)
	}
	return more, nil
}

// claimAround claims from the projects after c.After and then from the first one, until the claim
// is full, all projects were read, or mostSteps are done.
func (q Queries) claimAround(ctx context.Context, c todo.Claim, walk int) (
	items []todo.Item, next uuid.UUID, err error,
) {
	next = c.After
	wrapped, size := c.After == uuid.Nil, c.Limit
	for step := 0; step < mostSteps && len(items) < c.Limit; step++ {
		until := uuid.Max
		if wrapped && c.After != uuid.Nil {
			until = c.After
		}
		projects, err := q.ring(ctx, next, until, size)
		if err != nil {
			return nil, c.After, err
		}
		if len(projects) > 0 {
			more, last, err := q.claimOf(ctx, c, projects, c.Limit-len(items), walk)
			if err != nil {
				return nil, c.After, err
			}
			items, next = append(items, more...), last
		}
		if len(projects) == size {
			size = min(size*ringGrowth, mostProjects)
			continue
		}
		if wrapped {
			break
		}
		wrapped, next = true, uuid.Nil
	}
	return items, next, nil
}

func (q Queries) ring(ctx context.Context, after, until uuid.UUID, limit int) ([]uuid.UUID, error) {
	rows, err := q.DB.Query(ctx, ring, after, until, limit)
	if err != nil {
		return nil, fmt.Errorf("list projects with open items: %w", err)
	}
	projects, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id uuid.UUID, err error) {
		err = row.Scan((*[16]byte)(&id))
		return id, err
	})
	if err != nil {
		return nil, fmt.Errorf("list projects with open items: %w", err)
	}
	return projects, nil
}

// claimOf claims from some projects: first an equal share from each, then the rest of the limit
// from projects that have more. last is the last project that had its turn.
func (q Queries) claimOf(ctx context.Context, c todo.Claim, projects []uuid.UUID, limit, walk int) (
	items []todo.Item, last uuid.UUID, err error,
) {
	last = projects[len(projects)-1]
	for left := projects; len(left) > 0 && len(items) < limit; {
		missing := limit - len(items)
		window := max((missing+len(left)-1)/len(left), leastWindow)
		found, turns, err := q.claimWindow(ctx, c, left, missing, window, walk)
		if err != nil {
			return nil, uuid.Nil, err
		}
		if len(items) == 0 && len(found) == limit && turns[len(turns)-1] == 1 {
			last = found[0].ProjectID // some project has not had its turn
			for _, i := range found {
				if bytes.Compare(i.ProjectID[:], last[:]) > 0 {
					last = i.ProjectID
				}
			}
		}
		items = append(items, found...)
		full := left[:0:0]
		for n, turn := range turns {
			if turn == int64(window) {
				full = append(full, found[n].ProjectID)
			}
		}
		left = full
	}
	return items, last, nil
}

// claimWindow claims at most window items of each project. turns are the numbers of the items
// within their projects.
func (q Queries) claimWindow(ctx context.Context, c todo.Claim, projects []uuid.UUID, limit, window, walk int) (
	items []todo.Item, turns []int64, err error,
) {
	b := &pgx.Batch{}
	// The tables change faster than their statistics, from which Postgres would choose to read them
	// whole, and JIT compilation takes far longer than the statement. A lease is a hint and need
	// not wait for the disk.
	b.Queue(`select set_config('jit', 'off', true), set_config('enable_hashjoin', 'off', true),
		set_config('enable_mergejoin', 'off', true), set_config('enable_seqscan', 'off', true),
		set_config('synchronous_commit', 'off', true)`)
	queued := b.Queue(claim, limit, c.Holder, c.Now, c.Until, window, claimText, idsOf(projects), walk)
	queued.Query(func(rows pgx.Rows) (err error) {
		items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (todo.Item, error) {
			i, turn, err := scanClaimed(row)
			turns = append(turns, turn)
			return i, err
		})
		return err
	})
	if err := q.DB.SendBatch(ctx, b).Close(); err != nil {
		return nil, nil, fmt.Errorf("claim items: %w", err)
	}
	return items, turns, nil
}

func scanClaimed(row pgx.CollectableRow) (i todo.Item, turn int64, err error) {
	var (
		content, metadata []byte
		label, author     *string
		occurredAt        *time.Time
	)
	err = row.Scan((*[16]byte)(&i.ProjectID), (*[16]byte)(&i.IngestionID), (*[16]byte)(&i.DataPoint), &i.Ordinal, &i.Revision,
		&i.Attempt, &i.Round, &i.Phase, (*uint64)(&i.Position), &i.Suspect, &turn,
		&content, &metadata, &label, &author, &occurredAt)
	if content != nil {
		i.Text = &todo.Text{Content: string(content), Metadata: metadata, OccurredAt: occurredAt.UTC()}
		if label != nil {
			i.Text.Label = *label
		}
		if author != nil {
			i.Text.Author = *author
		}
	}
	return i, turn, err
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

// AbandonLeases ends all leases, at the start of a deployment of one process: their holders have
// ended, perhaps because of one of their items.
func (q Queries) AbandonLeases(ctx context.Context, now time.Time) error {
	if _, err := q.DB.Exec(ctx, `update ops.leases set until = $1 where until > $1`, now); err != nil {
		return fmt.Errorf("abandon leases: %w", err)
	}
	return nil
}

// ForgetLeases removes leases that have run out and whose data point has no open item.
func (q Queries) ForgetLeases(ctx context.Context, now time.Time) error {
	_, err := q.DB.Exec(ctx, `delete from ops.leases l where l.until <= $1
		and not exists (select from datapoints.items i
			where i.data_point = l.data_point and i.phase in ('queued', 'processing'))`, now)
	if err != nil {
		return fmt.Errorf("forget leases: %w", err)
	}
	return nil
}

func idsOf(list []uuid.UUID) [][16]byte {
	return unnest.IDs(list, func(id uuid.UUID) uuid.UUID { return id })
}
