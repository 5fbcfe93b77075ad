package datapoints

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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

// Counters are added to, as in save_counters.go.
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
