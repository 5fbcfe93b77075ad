package datapoints

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/unnest"
)

const (
	selectItems = `select i.ingestion_id, i.ordinal, i.project_id, i.data_point, i.revision, i.historic, i.outcome, i.phase, i.attempt,
		i.failure_code, i.failure_message, i.moot, i.deleted_at, i.superseded, i.position from items i `
	itemsByKey = selectItems + `join unnest($1::uuid[], $2::int[]) k (ingestion_id, ordinal) using (ingestion_id, ordinal)`
	itemsOf    = selectItems + `where data_point = any($1::uuid[]) and outcome not in ('unchanged', 'moved')`
	stoppedOf  = selectItems + `where data_point = any($1::uuid[]) and phase in ('failed', 'unindexed')`
	itemsWhole = selectItems + `where ingestion_id = any($1::uuid[])`
	itemsEnded = selectItems + `where ingestion_id = any($1::uuid[]) and phase in ('captured', 'failed', 'unindexed')`

	selectPoints = `select id, project_id, source_id, revision, captured, memories, audience, occurred_at, ingestion_id, accepted_at, position
		from data_points where id = any($1::uuid[])`
	selectDeletions = `select id, project_id, ingestion_id, accepted_at, fanned_out, cleaned, position from deletions where id = any($1::uuid[])`
	selectErasures  = `select data_point, project_id, deletion_id, facts_kept, blobs, position from erasures where data_point = any($1::uuid[])`
	selectBatches   = `select id, data_points, bytes from batches where id = any($1::uuid[])`

	selectSends = `select id, project_id, request_id, accepted_at, item_count, batch, phase, settled_at,
		failure_code, failure_message, failure_stands, round, ingestions, bytes, credit_tenths, month, fanned_out,
		deleted_at, verdict, verdict_at, searchable_at,
		queued, processing, captured, failed, standing, unchanged, deleted, last_deleted_at, position
		from sends where `
	sendsByID = selectSends + `id = any($1::uuid[])`
	// sendsSearchable are those that a watermark may end (send.endsBy).
	sendsSearchable = selectSends + `phase = 'captured' and failed = 0 and deleted = 0 and position <= $1`
	selectVerdicts  = `select id, project_id, verdict, verdict_at, failure_code, failure_message, round, deleted_at
		from verdicts where id = any($1::uuid[])`
)

// load reads the rows that a page touches, in two round trips: what the events name, then what those rows lead to.
func load(ctx context.Context, tx pgx.Tx, k *keys) (*page, error) {
	p, first := newPage(), &pgx.Batch{}
	if len(k.items) > 0 {
		sends, ordinals := make([][16]byte, 0, len(k.items)), make([]int32, 0, len(k.items))
		for key := range k.items {
			sends, ordinals = append(sends, key.send), append(ordinals, int32(key.ordinal))
		}
		first.Queue(itemsByKey, sends, ordinals).Query(p.readItems)
	}
	unnest.Queue(first, itemsOf, k.itemsOf, p.readItems)
	unnest.Queue(first, stoppedOf, k.stoppedOf, p.readItems)
	unnest.Queue(first, itemsWhole, k.whole, p.readItems)
	unnest.Queue(first, itemsEnded, k.ended, p.readItems)
	if k.searchable > 0 {
		first.Queue(sendsSearchable, int64(k.searchable)).Query(p.readSends)
	}
	unnest.Queue(first, selectPoints, k.points, p.readPoints)
	unnest.Queue(first, selectDeletions, k.deletions, p.readDeletions)
	unnest.Queue(first, selectErasures, k.erasures, p.readErasures)
	unnest.Queue(first, selectBatches, k.batches, p.readBatches)
	if err := unnest.Flush(ctx, tx, first); err != nil {
		return nil, fmt.Errorf("load the rows of the page: %w", err)
	}

	second, points := &pgx.Batch{}, ids{}
	for key, i := range p.items {
		k.sends.add(key.send)
		if _, ended := k.ended[key.send]; ended && p.points[i.dataPoint] == nil {
			points.add(i.dataPoint)
		}
	}
	for _, d := range p.deletions {
		if d.send != uuid.Nil {
			k.sends.add(d.send)
		}
	}
	unnest.Queue(second, selectPoints, points, p.readPoints)
	for id, s := range p.sends {
		if s.stored == inSends { // it was loaded for a watermark
			delete(k.sends, id)
		}
	}
	unnest.Queue(second, sendsByID, k.sends, p.readSends)
	unnest.Queue(second, selectVerdicts, k.sends, p.readVerdicts)
	if err := unnest.Flush(ctx, tx, second); err != nil {
		return nil, fmt.Errorf("load the sends of the page: %w", err)
	}
	return p, nil
}

func (p *page) readItems(rows pgx.Rows) error {
	for rows.Next() {
		i := &item{}
		if err := rows.Scan((*[16]byte)(&i.send), &i.ordinal, (*[16]byte)(&i.project), (*[16]byte)(&i.dataPoint), &i.revision, &i.historic,
			&i.outcome, &i.phase, &i.attempt, &i.code, &i.message, &i.moot, &i.deletedAt, &i.superseded, (*uint64)(&i.position)); err != nil {
			return err
		}
		if p.items[i.itemKey] == nil {
			p.put(i)
		}
	}
	return rows.Err()
}

func (p *page) readPoints(rows pgx.Rows) error {
	for rows.Next() {
		d := &point{}
		if err := rows.Scan((*[16]byte)(&d.id), (*[16]byte)(&d.project), &d.sourceID, &d.revision, &d.captured, &d.memories, (*[16]byte)(&d.audience),
			&d.occurredAt, (*[16]byte)(&d.send), &d.acceptedAt, (*uint64)(&d.position)); err != nil {
			return err
		}
		d.counted = d.scoped()
		p.points[d.id] = d
	}
	return rows.Err()
}

func (p *page) readDeletions(rows pgx.Rows) error {
	for rows.Next() {
		d, send := &deletionRow{}, (*[16]byte)(nil)
		if err := rows.Scan((*[16]byte)(&d.id), (*[16]byte)(&d.project), &send, &d.acceptedAt, &d.fannedOut, &d.cleaned, (*uint64)(&d.position)); err != nil {
			return err
		}
		if send != nil {
			d.send = *send
		}
		p.deletions[d.id] = d
	}
	return rows.Err()
}

func (p *page) readErasures(rows pgx.Rows) error {
	for rows.Next() {
		e := &erasure{}
		if err := rows.Scan((*[16]byte)(&e.dataPoint), (*[16]byte)(&e.project), (*[16]byte)(&e.deletion), &e.factsKept, &e.blobs, (*uint64)(&e.position)); err != nil {
			return err
		}
		p.erasures[e.dataPoint] = e
	}
	return rows.Err()
}

func (p *page) readBatches(rows pgx.Rows) error {
	for rows.Next() {
		var (
			id         uuid.UUID
			dataPoints []uuid.UUID
			bytes      []int64
		)
		if err := rows.Scan((*[16]byte)(&id), &dataPoints, &bytes); err != nil {
			return err
		}
		items := make([]offered, len(dataPoints))
		for n, dataPoint := range dataPoints {
			items[n] = offered{dataPoint: dataPoint, bytes: bytes[n]}
		}
		p.batches[id] = items
	}
	return rows.Err()
}

func (p *page) readSends(rows pgx.Rows) error {
	for rows.Next() {
		s := &send{known: true, stored: inSends}
		if err := rows.Scan((*[16]byte)(&s.id), (*[16]byte)(&s.project), (*[16]byte)(&s.request), &s.acceptedAt, &s.items, &s.batch,
			&s.phase, &s.settledAt, &s.code, &s.message, &s.stands, &s.round, &s.ingestions, &s.bytes, &s.creditTenths, &s.month, &s.fannedOut,
			&s.deletedAt, &s.verdict, &s.verdictAt, &s.searchableAt,
			&s.queued, &s.processing, &s.captured, &s.failed, &s.standing, &s.unchanged, &s.deleted, &s.lastDeletedAt,
			(*uint64)(&s.position)); err != nil {
			return err
		}
		s.before, s.charged = s.readiness(), s.charges
		p.sends[s.id] = s
	}
	return rows.Err()
}

func (p *page) readVerdicts(rows pgx.Rows) error {
	for rows.Next() {
		s := &send{stored: inVerdicts}
		if err := rows.Scan((*[16]byte)(&s.id), (*[16]byte)(&s.project), &s.verdict, &s.verdictAt,
			&s.code, &s.message, &s.round, &s.deletedAt); err != nil {
			return err
		}
		p.sends[s.id] = s
	}
	return rows.Err()
}
