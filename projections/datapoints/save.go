package datapoints

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections/table"
)

const (
	deleteSendsWithoutItems = `delete from sends_without_items where id = any($1::uuid[])`

	// insertBatches makes an array of the items of each batch.
	insertBatches = `insert into batches (id, data_points, bytes)
		select id, array_agg(data_point order by ordinal), array_agg(bytes order by ordinal)
		from unnest($1::uuid[], $2::int[], $3::uuid[], $4::bigint[]) as b (id, ordinal, data_point, bytes) group by id
		on conflict (id) do nothing`
	deleteBatches  = `delete from batches where id = any($1::uuid[])`
	deleteErasures = `delete from erasures where deletion_id = any($1::uuid[])`
)

// save writes the changed rows in one round trip.
func (f *fold) save(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	f.saveSends(b)
	moved := f.assignLanes()
	items.Save(b, table.Filter(f.items, func(i *item) bool { return i.dirty }))
	saveMovedHeads(b, moved)
	f.countBulk(b)
	f.saveBatches(b)
	f.saveBlobs(b)
	f.saveDamage(b)
	f.saveDataPoints(b)
	f.saveDeletions(b)
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("write the rows of the page: %w", err)
	}
	return nil
}

func (f *fold) saveSends(b *pgx.Batch) {
	var withItems []*send
	var without []*sendWithoutItems
	var found []uuid.UUID
	for _, s := range f.sends {
		if !s.dirty {
			continue
		}
		if !s.known {
			without = append(without, &s.sendWithoutItems)
			continue
		}
		if s.stored == inSendsWithoutItems {
			found = append(found, s.ID)
		}
		if s.Phase != failed {
			s.Code, s.Message = nil, nil
		}
		withItems = append(withItems, s)
	}
	sends.Save(b, withItems)
	sendsWithoutItems.Save(b, without)
	if len(found) > 0 {
		b.Queue(deleteSendsWithoutItems, found)
	}
	f.countSends(b)
}

// saveBatches writes new batches, and deletes those that are fanned out.
func (f *fold) saveBatches(b *pgx.Batch) {
	var closed []uuid.UUID
	var ids, dataPoints []uuid.UUID
	var ordinals []int32
	var bytes []int64
	for id, list := range f.batches {
		_, isNew := f.newBatches[id]
		if list == nil && !isNew {
			closed = append(closed, id)
		}
		if isNew {
			for n, i := range list {
				ids, ordinals, dataPoints = append(ids, id), append(ordinals, int32(n)), append(dataPoints, i.dataPoint)
				bytes = append(bytes, i.bytes)
			}
		}
	}
	if len(closed) > 0 {
		b.Queue(deleteBatches, closed)
	}
	if len(ids) > 0 {
		b.Queue(insertBatches, ids, ordinals, dataPoints, bytes)
	}
}

func (f *fold) saveDeletions(b *pgx.Batch) {
	deletions.Save(b, table.Filter(f.deletions, func(d *deletionRow) bool { return d.dirty }))
	erasures.Save(b, table.Filter(f.erasures, func(e *erasure) bool { return e.dirty }))
	if len(f.cleaned) > 0 {
		b.Queue(deleteErasures, pgarray.Keys(f.cleaned))
	}
}
