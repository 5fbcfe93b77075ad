package datapoints

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/work"
)

// An open item is in one of two lanes: live if it was sent alone, bulk if in a batch. The revisions of a
// data point are derived in their order, so only the lowest open one is due. It is due in the live lane
// also if a later open revision is live: a batch then does not hold up a live send of the same data point.

// itemShare is what an item counts for in table bulk.
type itemShare struct{ items, bytes int64 }

func (i *item) share() itemShare {
	if !i.Batch || !i.isOpen() {
		return itemShare{}
	}
	return itemShare{items: 1, bytes: i.Bytes}
}

// lane returns the lane of an item that has its data point for itself, "" if the item is not open.
func (i *item) lane() work.Lane {
	switch {
	case !i.isOpen():
		return ""
	case i.Batch:
		return work.LaneBulk
	default:
		return work.LaneLive
	}
}

// reopened reports whether the page opened or closed the item.
func (i *item) reopened() bool { return i.dirty && i.isOpen() != i.wasOpen }

// assignLanes sets which items of the page are due. It returns the data points that may have other open
// items than those of the page, with the number of their items that were opened or closed:
// saveMovedHeads then finds the item that is due.
func (f *fold) assignLanes() (moved map[uuid.UUID]int) {
	moved = map[uuid.UUID]int{}
	for dataPoint, items := range f.itemsOf {
		var changed []*item
		for _, i := range items {
			if i.reopened() {
				changed = append(changed, i)
			}
		}
		if len(changed) == 0 {
			continue
		}
		row := f.dataPoints[dataPoint]
		_, removed := f.removed[dataPoint]
		switch {
		case row != nil && row.Revision == 1: // the only revision
			for _, i := range changed {
				i.Due = i.lane()
			}
			continue
		case removed, f.ending.has(dataPoint): // no item is to be derived
		case row != nil && len(changed) == 1 && changed[0].Due != "" && changed[0].Revision == row.Revision:
			// It was the lowest open revision and is the newest.
		default:
			moved[dataPoint] = len(changed)
		}
		for _, i := range changed {
			i.Due = ""
		}
	}
	return moved
}

// updateDue makes the lowest open item of each data point due, and the others not. All items above
// those that it reads were not due before: the page changed $2 of them.
const updateDue = `update items i set due = h.lane
	from unnest($1::uuid[], $2::int[]) as p (id, changed) cross join lateral (
		select o.ingestion_id, o.ordinal, case
			when row_number() over (order by o.revision) > 1 then null
			when exists (select from items l where l.data_point = p.id and not l.batch
				and l.phase in ('queued', 'processing')) then $3::text
			else $4::text end as lane
		from (
			(select ingestion_id, ordinal, revision from items where data_point = p.id and not batch
				and phase in ('queued', 'processing') order by revision limit p.changed + 1)
			union all
			(select ingestion_id, ordinal, revision from items where data_point = p.id and batch
				and phase in ('queued', 'processing') order by revision limit p.changed + 1)
		) o
	) h
	where i.ingestion_id = h.ingestion_id and i.ordinal = h.ordinal and i.due is distinct from h.lane`

// saveMovedHeads finds the due items of data points with several open items. It runs after the items of
// the page are written.
func saveMovedHeads(b *pgx.Batch, moved map[uuid.UUID]int) {
	if len(moved) == 0 {
		return
	}
	dataPoints := pgarray.Keys(moved)
	b.Queue(updateDue, dataPoints,
		pgarray.Column(dataPoints, func(id uuid.UUID) int32 { return int32(moved[id]) }), work.LaneLive, work.LaneBulk)
}

// Counters are added to, as in save.go.
const (
	addBulk = `insert into bulk as b (project_id, items, bytes)
		select * from unnest($1::uuid[], $2::bigint[], $3::bigint[])
		on conflict (project_id) do update set items = b.items + excluded.items, bytes = b.bytes + excluded.bytes`
	deleteBulk = `delete from bulk where project_id = any($1::uuid[]) and items = 0`
)

// countBulk adds the changes of items to the backlog of batches of their projects.
func (f *fold) countBulk(b *pgx.Batch) {
	changes := map[uuid.UUID]itemShare{}
	for _, i := range f.items {
		if now := i.share(); i.dirty && now != i.counted {
			change := changes[i.Project]
			change.items += now.items - i.counted.items
			change.bytes += now.bytes - i.counted.bytes
			changes[i.Project] = change
		}
	}
	if len(changes) == 0 {
		return
	}
	projects := pgarray.Keys(changes)
	b.Queue(addBulk, projects,
		pgarray.Column(projects, func(id uuid.UUID) int64 { return changes[id].items }),
		pgarray.Column(projects, func(id uuid.UUID) int64 { return changes[id].bytes }))
	b.Queue(deleteBulk, projects)
}

// This file alone writes ops.leases, which is not a table of the projection: a rebuild keeps it, and no
// event changes it. A lease is taken here, in the read model, since one statement must pick the items and
// lock them: to read the list first and lease in another place would let every worker try the same items.
// Leases only spare workers double work. The append of an attempt decides, so a lost lease does no harm.

// selectDueProjects lists at most $3 projects with due items of lane $4 by id, after $1 and up to $2. It
// steps through an index, so its cost does not depend on the number of items.
const selectDueProjects = `
with recursive projects (id, n) as (
	(select project_id, 1 from datapoints.items where due = $4
		and project_id > $1 and project_id <= $2 order by project_id limit 1)
	union all
	select (select i.project_id from datapoints.items i where i.due = $4
		and i.project_id > p.id and i.project_id <= $2 order by i.project_id limit 1), p.n + 1
	from projects p where p.id is not null and p.n < $3
)
select id from projects where id is not null`

// leaseItems leases the oldest due items of a lane of the given projects, up to a window per project. The
// first item of every project precedes the second of any. It reads the items in the order of an index,
// and passes over those that are leased.
//
// It takes a lease only if the earlier one is still over once its row is locked, so that one of two
// concurrent workers gets the item.
const leaseItems = `
with due as (
	select distinct on (i.data_point) i.*, p.place
	from unnest($7::uuid[]) with ordinality as p (id, place) cross join lateral (
		select * from datapoints.items o where o.due = $8 and o.project_id = p.id
			and coalesce((select l.until <= $3 from ops.leases l where l.data_point = o.data_point), true)
		order by o.due, o.project_id, o.position, o.ingestion_id, o.ordinal limit $5
	) i
	order by i.data_point
), numbered as (
	select d.*, row_number() over (partition by d.project_id order by d.position, d.ingestion_id, d.ordinal)
		as round_robin
	from due d
), picked as (
	select * from numbered order by round_robin, place limit $1
), taken as (
	insert into ops.leases as l (data_point, holder, until) select data_point, $2, $4 from picked
	on conflict (data_point) do update set holder = excluded.holder, until = excluded.until where l.until <= $3
	returning l.data_point, l.xmax <> 0 as suspect -- where a row was there, its xmax is this transaction
), texts as (
	select p.*, taken.suspect, r.content, r.metadata, r.label, r.author, r.occurred_at,
		octet_length(r.content) + coalesce(octet_length(r.metadata), 0) as text_bytes
	from picked p join taken using (data_point)
	left join lateral (
		select * from datapoints.revisions where data_point = p.data_point and number = p.revision
			and content is not null and metadata_blob is null offset 0
	) r on true
), fitting as (
	select *, text_bytes <= $6 or sum(text_bytes) filter (where text_bytes > $6)
		over (order by round_robin, position, ingestion_id, ordinal) <= $9 as fits
	from texts
)
select f.project_id, f.ingestion_id, f.data_point, f.ordinal, f.revision, f.attempt, s.round, f.phase, f.position,
	f.suspect, f.round_robin, case when f.fits then f.content end, case when f.fits then f.metadata end,
	f.label, f.author, f.occurred_at,
	case when f.revision > 1 then (select d.memory_head from datapoints.data_points d
		where d.id = f.data_point and d.captured < f.revision) end
from fitting f cross join lateral (select round from datapoints.sends where id = f.ingestion_id offset 0) s
order by f.round_robin, f.position, f.ingestion_id, f.ordinal`

// planLease makes Postgres read leaseItems and selectDueProjects in the order of their index. The tables
// change faster than their statistics, which would make it choose scans of all that waits, and JIT
// compilation takes far longer than the statement. Tables are read in lateral joins with "offset 0", by key: nothing
// else than a loop can do those, so that a hash joins just what was picked and what of it was taken, which a loop would
// compare each with each. A lease is a hint, so its commit need not wait for the disk.
const planLease = `select set_config(name, 'off', true) from unnest(array['jit', 'enable_nestloop', 'enable_mergejoin',
	'enable_seqscan', 'enable_bitmapscan', 'enable_sort', 'synchronous_commit']) as name`

const (
	// minWindow is how many items of a project one request may lease, even with many projects.
	minWindow = 2
	// projectGrowth is the factor by which each step reads more projects while the request is not
	// full, maxProjects the most projects of a step, and maxSteps the most steps.
	projectGrowth = 16
	maxProjects   = 4096
	maxSteps      = 4
	// smallText is the most bytes of a text, with its metadata, that is returned with its item whatever
	// else is. Larger ones are returned up to largeTexts in all, the first in the order of the items.
	smallText  = 16 << 10
	largeTexts = 4 << 20
)

// Lease leases at most c.Limit items of a lane to derive, oldest first and fair between projects: items
// that are queued, or that were started and whose lease is over, and of each data point only the lowest
// open revision. Items come with their text unless it is in a blob, or large texts before it fill the
// bound. The next request begins with the project after next.
//
// It starts with the projects after c.After, then those from the first one on, until the request is full,
// all projects are read, or maxSteps are done.
func (q Queries) Lease(ctx context.Context, c work.LeaseRequest) (items []work.Item, next uuid.UUID, err error) {
	next = c.After
	wrapped, size, room := c.After == uuid.Nil, c.Limit, int64(largeTexts)
	for step := 0; step < maxSteps && len(items) < c.Limit; step++ {
		until := uuid.Max
		if wrapped && c.After != uuid.Nil {
			until = c.After
		}
		projects, err := q.dueProjects(ctx, c.Lane, next, until, size)
		if err != nil {
			return nil, c.After, err
		}
		if len(projects) > 0 {
			more, last, err := q.leaseFrom(ctx, c, projects, c.Limit-len(items), &room)
			if err != nil {
				return nil, c.After, err
			}
			items, next = append(items, more...), last
		}
		if len(projects) == size {
			size = min(size*projectGrowth, maxProjects)
			continue
		}
		if wrapped {
			break
		}
		wrapped, next = true, uuid.Nil
	}
	return items, next, nil
}

func (q Queries) dueProjects(
	ctx context.Context, lane work.Lane, after, until uuid.UUID, limit int,
) (projects []uuid.UUID, err error) {
	b := &pgx.Batch{}
	b.Queue(planLease)
	b.Queue(selectDueProjects, after, until, limit, lane).Query(func(rows pgx.Rows) (err error) {
		projects, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		return err
	})
	if err := q.DB.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("list projects with due items: %w", err)
	}
	return projects, nil
}

// leaseFrom leases from the given projects: first an equal share of each, then the rest of the
// limit from projects that have more. last is the last project that was served. room is how many bytes of
// large texts may still be returned.
func (q Queries) leaseFrom(
	ctx context.Context, c work.LeaseRequest, projects []uuid.UUID, limit int, room *int64,
) (items []work.Item, last uuid.UUID, err error) {
	last = projects[len(projects)-1]
	for left := projects; len(left) > 0 && len(items) < limit; {
		missing := limit - len(items)
		window := max((missing+len(left)-1)/len(left), minWindow)
		found, ranks, err := q.leaseWindow(ctx, c, left, missing, window, room)
		if err != nil {
			return nil, uuid.Nil, err
		}
		if len(items) == 0 && len(found) == limit && ranks[len(ranks)-1] == 1 {
			last = found[0].ProjectID // some project was not served
			for _, i := range found {
				if bytes.Compare(i.ProjectID[:], last[:]) > 0 {
					last = i.ProjectID
				}
			}
		}
		items = append(items, found...)
		full := left[:0:0]
		for n, rank := range ranks {
			if rank == int64(window) {
				full = append(full, found[n].ProjectID)
			}
		}
		left = full
	}
	return items, last, nil
}

// leaseWindow leases at most window items of each project. ranks number the items within their
// projects, from 1.
func (q Queries) leaseWindow(
	ctx context.Context, c work.LeaseRequest, projects []uuid.UUID, limit, window int, room *int64,
) (items []work.Item, ranks []int64, err error) {
	b := &pgx.Batch{}
	b.Queue(planLease)
	queued := b.Queue(leaseItems, limit, c.Holder, c.Now, c.Until, window, smallText, projects, c.Lane, *room)
	queued.Query(func(rows pgx.Rows) (err error) {
		items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (work.Item, error) {
			i, rank, err := scanLeased(row)
			i.Lane = c.Lane
			ranks = append(ranks, rank)
			return i, err
		})
		return err
	})
	if err := q.DB.SendBatch(ctx, b).Close(); err != nil {
		return nil, nil, fmt.Errorf("claim items: %w", err)
	}
	for _, i := range items {
		if i.Text == nil {
			continue
		}
		if size := int64(len(i.Text.Content) + len(i.Text.Metadata)); size > smallText {
			*room -= size
		}
	}
	return items, ranks, nil
}

func scanLeased(row pgx.CollectableRow) (i work.Item, rank int64, err error) {
	var (
		content, metadata []byte
		label, author     *string
		occurredAt        *time.Time
		memoryHead        *int64
	)
	err = row.Scan(&i.ProjectID, &i.IngestionID, &i.DataPoint, &i.Ordinal, &i.Revision, &i.Attempt, &i.Round, &i.Phase,
		(*uint64)(&i.Position), &i.Suspect, &rank, &content, &metadata, &label, &author, &occurredAt, &memoryHead)
	if memoryHead != nil {
		i.MemoryHead = new(eventstore.Revision(*memoryHead))
	}
	if content != nil {
		i.Text = &work.Text{Content: string(content), Metadata: metadata, OccurredAt: occurredAt.UTC()}
		if label != nil {
			i.Text.Label = *label
		}
		if author != nil {
			i.Text.Author = *author
		}
	}
	return i, rank, err
}

// Extend sets the end of those leases that the holder still has.
func (q Queries) Extend(ctx context.Context, holder string, dataPoints []uuid.UUID, until time.Time) error {
	b := &pgx.Batch{}
	b.Queue(`select set_config('synchronous_commit', 'off', true)`)
	b.Queue(`update ops.leases set until = $3 where holder = $1 and data_point = any($2::uuid[])`,
		holder, dataPoints, until)
	if err := q.DB.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("extend leases: %w", err)
	}
	return nil
}

// Release removes the leases that the holder still has.
func (q Queries) Release(ctx context.Context, holder string, dataPoints []uuid.UUID) error {
	b := &pgx.Batch{}
	b.Queue(`select set_config('synchronous_commit', 'off', true)`)
	b.Queue(`delete from ops.leases where holder = $1 and data_point = any($2::uuid[])`, holder, dataPoints)
	if err := q.DB.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("release leases: %w", err)
	}
	return nil
}

// AbandonLeases ends all leases. A deployment of one process calls it at the start: the holders
// have ended, perhaps because of one of their items.
func (q Queries) AbandonLeases(ctx context.Context, now time.Time) error {
	if _, err := q.DB.Exec(ctx, `update ops.leases set until = $1 where until > $1`, now); err != nil {
		return fmt.Errorf("abandon leases: %w", err)
	}
	return nil
}

// Leased reports whether a process has leased an item at a time: whether items are being derived.
func (q Queries) Leased(ctx context.Context, at time.Time) (leased bool, err error) {
	err = q.DB.QueryRow(ctx, `select exists (select from ops.leases where until > $1)`, at).Scan(&leased)
	if err != nil {
		return false, fmt.Errorf("look for leases: %w", err)
	}
	return leased, nil
}

// ForgetLeases removes leases that are over and whose data point has no open item.
func (q Queries) ForgetLeases(ctx context.Context, now time.Time) error {
	_, err := q.DB.Exec(ctx, `delete from ops.leases l where l.until <= $1
		and not exists (select from datapoints.items i
			where i.data_point = l.data_point and i.phase in ('queued', 'processing'))`, now)
	if err != nil {
		return fmt.Errorf("forget leases: %w", err)
	}
	return nil
}

// Bulk is what waits in batches: items that are not derived, and the bytes of their texts.
type Bulk struct {
	Items int
	Bytes int64
}

// BulkByProject reads what waits in batches, by project. It reads a row for each project with such
// items, however many wait. A batch that is not fanned out has no items yet.
func (q Queries) BulkByProject(ctx context.Context) (map[uuid.UUID]Bulk, error) {
	rows, err := q.DB.Query(ctx, `select project_id, items, bytes from datapoints.bulk`)
	if err != nil {
		return nil, fmt.Errorf("read the backlog of batches: %w", err)
	}
	backlog := map[uuid.UUID]Bulk{}
	var (
		project uuid.UUID
		b       Bulk
	)
	_, err = pgx.ForEachRow(rows, []any{&project, &b.Items, &b.Bytes}, func() error { backlog[project] = b; return nil })
	if err != nil {
		return nil, fmt.Errorf("read the backlog of batches: %w", err)
	}
	return backlog, nil
}
