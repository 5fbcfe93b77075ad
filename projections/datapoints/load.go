package datapoints

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/pgarray"
)

const (
	itemColumns = `select i.ingestion_id, i.ordinal, i.project_id, i.data_point, i.revision, i.historic, i.outcome,
		i.phase, i.attempt,
		i.failure_code, i.failure_message, i.overtaken, i.deleted_at, i.outdated, i.batch, i.bytes, coalesce(i.due, ''),
		i.position from `
	selectItems   = itemColumns + `items i `
	selectItemsOf = itemColumns + `unnest($1::uuid[]) k (id) cross join lateral `
	// The conditions of the indexes items_stopped and items_by_data_point.
	stopped      = `phase in ('failed', 'unindexed') and not overtaken`
	withRevision = `outcome not in ('unchanged', 'moved')`

	itemsByKey = selectItems + `join unnest($1::uuid[], $2::int[]) k (ingestion_id, ordinal) using (ingestion_id,
		ordinal)`
	// itemsOf reads some items with a revision of each data point, first those that a send waits for.
	itemsOf = selectItemsOf + `(
			(select * from items where data_point = k.id and phase in ('queued', 'processing')
				order by batch, revision limit $2)
			union all (select * from items where data_point = k.id and ` + stopped + ` order by revision limit $2)
			union all (select * from items where data_point = k.id and ` + withRevision + ` order by revision limit $2)
		) i`
	failedOf = selectItemsOf + `(
			select * from items where data_point = k.id and ` + stopped + ` order by revision limit $2
		) i`
	// itemsFollowed reads the items of sends whose data points have follow-ups.
	itemsFollowed = selectItems + `where ingestion_id = any($1::uuid[])
		and (data_point = any($2::uuid[]) or data_point in (select key from follow_ups))`
	itemsAll   = selectItems + `where ingestion_id = any($1::uuid[])`
	itemsEnded = selectItems + `where ingestion_id = any($1::uuid[]) and phase in ('captured', 'failed', 'unindexed')`

	selectDataPoints = `select id, project_id, source_id, revision, captured, memories, memory_head, audience, occurred_at,
		ingestion_id, accepted_at, position, author, label_key,
		label, size, metadata_size, content_blob, tokens, traits, stems, exact
		from data_points where id = any($1::uuid[])`
	selectDeletions = `select id, project_id, ingestion_id, accepted_at, fanned_out, cleaned, position from deletions
		where id = any($1::uuid[])`
	selectErasures = `select data_point, project_id, deletion_id, facts_kept, blobs, position from erasures
		where data_point = any($1::uuid[])`
	selectBatches = `select id, data_points, bytes from batches where id = any($1::uuid[])`

	selectSends = `select id, project_id, request_id, accepted_at, item_count, batch, phase, settled_at,
		failure_code, failure_message, failure_open, round, ingestions, bytes, credit_tenths, month, fanned_out,
		deleted_at, final_phase, final_at, searchable_at,
		queued, processing, captured, failed, open_failures, unchanged, deleted, last_deleted_at, position
		from sends where `
	sendsByID = selectSends + `id = any($1::uuid[])`
	// sendsSearchable reads the sends that a watermark may end (send.endedBy).
	sendsSearchable         = selectSends + `phase = 'captured' and failed = 0 and deleted = 0 and position <= $1`
	selectSendsWithoutItems = `select id, project_id, final_phase, final_at, failure_code, failure_message, round, deleted_at
		from sends_without_items where id = any($1::uuid[])`
)

// load reads the rows that a page touches in two round trips: those that the events name, then
// those that these lead to.
//
// Of a data point with many items it reads about as many as rows; follow-ups do the rest (followup.go).
func load(ctx context.Context, tx pgx.Tx, k *keys, rows int) (*fold, error) {
	f, first := newFold(), &pgx.Batch{}
	f.most = min(rows, max(rows*4/max(len(k.itemsOf)+len(k.failedOf), 1), leastItems))
	if len(k.items) > 0 {
		sends, ordinals := make([]uuid.UUID, 0, len(k.items)), make([]int32, 0, len(k.items))
		for key := range k.items {
			sends, ordinals = append(sends, key.send), append(ordinals, int32(key.ordinal))
		}
		first.Queue(itemsByKey, sends, ordinals).Query(f.readItems)
	}
	for sql, of := range map[string]ids{itemsOf: k.itemsOf, failedOf: k.failedOf} {
		if len(of) > 0 {
			first.Queue(sql, pgarray.Keys(of), f.most+1).Query(f.readItems)
		}
	}
	first.Queue(`select exists (select from follow_ups)`).QueryRow(func(row pgx.Row) error { return row.Scan(&f.followed) })
	pgarray.Queue(first, itemsAll, k.allItems, f.readItems)
	pgarray.Queue(first, itemsEnded, k.endedItems, f.readItems)
	if k.searchable > 0 {
		first.Queue(sendsSearchable, int64(k.searchable)).Query(f.readSends)
	}
	pgarray.Queue(first, selectDataPoints, k.dataPoints, f.readDataPoints)
	pgarray.Queue(first, selectDeletions, k.deletions, f.readDeletions)
	pgarray.Queue(first, selectErasures, k.erasures, f.readErasures)
	pgarray.Queue(first, selectBatches, k.batches, f.readBatches)
	if err := pgarray.Flush(ctx, tx, first); err != nil {
		return nil, fmt.Errorf("load the rows of the page: %w", err)
	}

	second, dataPoints := &pgx.Batch{}, ids{}
	for key, i := range f.items {
		k.sends.add(key.send)
		if _, ended := k.endedItems[key.send]; ended && f.dataPoints[i.dataPoint] == nil {
			dataPoints.add(i.dataPoint)
		}
	}
	for _, d := range f.deletions {
		if d.send != uuid.Nil {
			k.sends.add(d.send)
		}
	}
	pgarray.Queue(second, selectDataPoints, dataPoints, f.readDataPoints)
	for id, s := range f.sends {
		if s.stored == inSends { // loaded for a watermark
			delete(k.sends, id)
		}
	}
	pgarray.Queue(second, sendsByID, k.sends, f.readSends)
	pgarray.Queue(second, selectSendsWithoutItems, k.sends, f.readSendsWithoutItems)
	if err := pgarray.Flush(ctx, tx, second); err != nil {
		return nil, fmt.Errorf("load the sends of the page: %w", err)
	}
	return f, f.loadFollowed(ctx, tx, k)
}

func (f *fold) readItems(rows pgx.Rows) error {
	for rows.Next() {
		i := &item{}
		err := rows.Scan(&i.send, &i.ordinal, &i.project, &i.dataPoint, &i.revision, &i.historic,
			&i.outcome, &i.phase, &i.attempt, &i.code, &i.message, &i.overtaken, &i.deletedAt, &i.outdated, &i.batch, &i.bytes,
			&i.due, (*uint64)(&i.position))
		if err != nil {
			return err
		}
		i.wasOpen, i.counted = i.isOpen(), i.share()
		if f.items[i.itemKey] == nil {
			f.addItem(i)
		}
	}
	return rows.Err()
}

func (f *fold) readDataPoints(rows pgx.Rows) error {
	for rows.Next() {
		d := &dataPointRow{}
		err := rows.Scan(&d.id, &d.project, &d.sourceID, &d.revision, &d.captured, &d.memories, &d.memoryHead,
			&d.audience, &d.occurredAt, &d.send, &d.acceptedAt, (*uint64)(&d.position), &d.author, &d.labelKey,
			&d.label, &d.size, &d.metadataSize, &d.blob, &d.tokens, &d.traits, &d.stems, &d.exact)
		if err != nil {
			return err
		}
		d.counted = d.share()
		f.dataPoints[d.id] = d
	}
	return rows.Err()
}

func (f *fold) readDeletions(rows pgx.Rows) error {
	for rows.Next() {
		d, send := &deletionRow{}, (*uuid.UUID)(nil)
		err := rows.Scan(&d.id, &d.project, &send, &d.acceptedAt, &d.fannedOut, &d.cleaned, (*uint64)(&d.position))
		if err != nil {
			return err
		}
		if send != nil {
			d.send = *send
		}
		f.deletions[d.id] = d
	}
	return rows.Err()
}

func (f *fold) readErasures(rows pgx.Rows) error {
	for rows.Next() {
		e := &erasure{}
		err := rows.Scan(&e.dataPoint, &e.project, &e.deletion, &e.factsKept, &e.blobs, (*uint64)(&e.position))
		if err != nil {
			return err
		}
		f.erasures[e.dataPoint] = e
	}
	return rows.Err()
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

func (f *fold) readSends(rows pgx.Rows) error {
	for rows.Next() {
		s := &send{known: true, stored: inSends}
		err := rows.Scan(&s.id, &s.project, &s.request, &s.acceptedAt, &s.items, &s.batch, &s.phase, &s.settledAt, &s.code,
			&s.message, &s.failureOpen, &s.round, &s.ingestions, &s.bytes, &s.creditTenths, &s.month, &s.fannedOut,
			&s.deletedAt, &s.finalPhase, &s.finalAt, &s.searchableAt, &s.queued, &s.processing, &s.captured, &s.failed,
			&s.openFailures, &s.unchanged, &s.deleted, &s.lastDeletedAt, (*uint64)(&s.position))
		if err != nil {
			return err
		}
		s.before, s.charged = s.readiness(), s.charges
		f.sends[s.id] = s
	}
	return rows.Err()
}

func (f *fold) readSendsWithoutItems(rows pgx.Rows) error {
	for rows.Next() {
		s := &send{stored: inSendsWithoutItems}
		err := rows.Scan(&s.id, &s.project, &s.finalPhase, &s.finalAt, &s.code, &s.message, &s.round, &s.deletedAt)
		if err != nil {
			return err
		}
		f.sends[s.id] = s
	}
	return rows.Err()
}
