package datapoints

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections/table"
)

// The conditions of the indexes items_stopped and items_by_data_point.
const (
	stopped      = `phase in ('failed', 'unindexed') and not overtaken`
	withRevision = `outcome not in ('unchanged', 'moved')`
)

var (
	itemsByKey = items.Select(`items join unnest($1::uuid[], $2::int[]) k (ingestion_id, ordinal) using (ingestion_id,
		ordinal)`)
	// itemsOf reads some items with a revision of each data point, first those that a send waits for.
	itemsOf = items.Select(`unnest($1::uuid[]) k (id) cross join lateral (
			(select * from items where data_point = k.id and phase in ('queued', 'processing')
				order by batch, revision limit $2)
			union all (select * from items where data_point = k.id and ` + stopped + ` order by revision limit $2)
			union all (select * from items where data_point = k.id and ` + withRevision + ` order by revision limit $2)
		) i`)
	failedOf = items.Select(`unnest($1::uuid[]) k (id) cross join lateral (
			select * from items where data_point = k.id and ` + stopped + ` order by revision limit $2
		) i`)
	// itemsFollowed reads the items of sends whose data points have follow-ups.
	itemsFollowed = items.Select(`items where ingestion_id = any($1::uuid[])
		and (data_point = any($2::uuid[]) or data_point in (select key from follow_ups))`)
	itemsAll   = items.Select(`items where ingestion_id = any($1::uuid[])`)
	itemsEnded = items.Select(`items where ingestion_id = any($1::uuid[]) and phase in ('captured', 'failed', 'unindexed')`)

	// sendsSearchable reads the sends that a watermark may end (send.endedBy).
	sendsSearchable = sends.Select(`sends where phase = 'captured' and failed = 0 and deleted = 0 and position <= $1`)
)

// selectBatches reads arrays, of which each element is an item.
const selectBatches = `select id, data_points, bytes from batches where id = any($1::uuid[])`

// load reads the rows that a page touches in two round trips: those that the events name, then
// those that these lead to.
//
// Of a data point with many items it reads about as many as rows; follow-ups do the rest (followup.go).
func load(ctx context.Context, tx pgx.Tx, k *keys, rows int) (*fold, error) {
	f, first := newFold(), &pgx.Batch{}
	readItems := items.Read(f.itemLoaded)
	f.most = min(rows, max(rows*4/max(len(k.itemsOf)+len(k.failedOf), 1), leastItems))
	if len(k.items) > 0 {
		sends, ordinals := make([]uuid.UUID, 0, len(k.items)), make([]int32, 0, len(k.items))
		for key := range k.items {
			sends, ordinals = append(sends, key.Send), append(ordinals, int32(key.Ordinal))
		}
		first.Queue(itemsByKey, sends, ordinals).Query(readItems)
	}
	for sql, of := range map[string]ids{itemsOf: k.itemsOf, failedOf: k.failedOf} {
		if len(of) > 0 {
			first.Queue(sql, pgarray.Keys(of), f.most+1).Query(readItems)
		}
	}
	first.Queue(`select exists (select from follow_ups)`).QueryRow(func(row pgx.Row) error { return row.Scan(&f.followed) })
	pgarray.Queue(first, itemsAll, k.allItems, readItems)
	pgarray.Queue(first, itemsEnded, k.endedItems, readItems)
	if k.searchable > 0 {
		first.Queue(sendsSearchable, int64(k.searchable)).Query(sends.Read(f.sendLoaded))
	}
	table.Load(first, dataPoints, k.dataPoints, f.dataPointLoaded)
	table.Load(first, deletions, k.deletions, func(d *deletionRow) { f.deletions[d.ID] = d })
	table.Load(first, erasures, k.erasures, func(e *erasure) { f.erasures[e.DataPoint] = e })
	pgarray.Queue(first, selectBatches, k.batches, f.readBatches)
	if err := pgarray.Flush(ctx, tx, first); err != nil {
		return nil, fmt.Errorf("load the rows of the page: %w", err)
	}

	second, followed := &pgx.Batch{}, ids{}
	for key, i := range f.items {
		k.sends.add(key.Send)
		if _, ended := k.endedItems[key.Send]; ended && f.dataPoints[i.DataPoint] == nil {
			followed.add(i.DataPoint)
		}
	}
	for _, d := range f.deletions {
		if d.Send != uuid.Nil {
			k.sends.add(d.Send)
		}
	}
	table.Load(second, dataPoints, followed, f.dataPointLoaded)
	for id, s := range f.sends {
		if s.stored == inSends { // loaded for a watermark
			delete(k.sends, id)
		}
	}
	f.loadSends(second, k.sends)
	if err := pgarray.Flush(ctx, tx, second); err != nil {
		return nil, fmt.Errorf("load the sends of the page: %w", err)
	}
	return f, f.loadFollowed(ctx, tx, k)
}

// loadSends reads sends from the table that has them.
func (f *fold) loadSends(b *pgx.Batch, of ids) {
	table.Load(b, sends, of, f.sendLoaded)
	table.Load(b, sendsWithoutItems, of, func(s *sendWithoutItems) {
		f.sends[s.ID] = &send{sendWithoutItems: *s, stored: inSendsWithoutItems}
	})
}

func (f *fold) itemLoaded(i *item) {
	i.wasOpen, i.counted = i.isOpen(), i.share()
	if f.items[i.itemKey] == nil {
		f.addItem(i)
	}
}

func (f *fold) dataPointLoaded(d *dataPointRow) {
	d.counted = d.share()
	f.dataPoints[d.ID] = d
}

func (f *fold) sendLoaded(s *send) {
	s.known, s.stored = true, inSends
	s.before, s.charged = s.readiness(), s.charges
	f.sends[s.ID] = s
}

func (f *fold) readBatches(rows pgx.Rows) error {
	for rows.Next() {
		var (
			id         uuid.UUID
			dataPoints []uuid.UUID
			bytes      []int64
		)
		err := rows.Scan(&id, &dataPoints, &bytes)
		if err != nil {
			return err
		}
		items := make([]batchItem, len(dataPoints))
		for n, dataPoint := range dataPoints {
			items[n] = batchItem{dataPoint: dataPoint, bytes: bytes[n]}
		}
		f.batches[id] = items
	}
	return rows.Err()
}
