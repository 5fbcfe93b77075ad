package datapoints

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/internal/pgarray"
)

const (
	upsertItems = `insert into items (ingestion_id, ordinal, project_id, data_point, revision, historic, outcome,
		phase, attempt,
			failure_code, failure_message, overtaken, deleted_at, outdated, position, batch, bytes, due)
		select * from unnest($1::uuid[], $2::int[], $3::uuid[], $4::uuid[], $5::int[], $6::boolean[], $7::text[],
			$8::text[], $9::int[],
			$10::text[], $11::text[], $12::boolean[], $13::timestamptz[], $14::boolean[], $15::bigint[], $16::boolean[],
			$17::bigint[], $18::text[])
		on conflict (ingestion_id, ordinal) do update set revision = excluded.revision, historic = excluded.historic,
			outcome = excluded.outcome, phase = excluded.phase, attempt = excluded.attempt,
				failure_code = excluded.failure_code,
			failure_message = excluded.failure_message, overtaken = excluded.overtaken, deleted_at = excluded.deleted_at,
			outdated = excluded.outdated, position = excluded.position, bytes = excluded.bytes, due = excluded.due`
	upsertSends = `insert into sends (id, project_id, request_id, accepted_at, item_count, batch, phase, settled_at,
			failure_code, failure_message, failure_open, round, ingestions, bytes, credit_tenths, month, fanned_out,
				deleted_at, final_phase, final_at,
			queued, processing, captured, failed, open_failures, unchanged, deleted, last_deleted_at, position, searchable_at)
		select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::int[], $6::boolean[], $7::text[],
			$8::timestamptz[],
			$9::text[], $10::text[], $11::boolean[], $12::int[], $13::int[], $14::bigint[], $15::bigint[], $16::text[],
				$17::boolean[],
			$18::timestamptz[], $19::text[], $20::timestamptz[], $21::int[], $22::int[], $23::int[], $24::int[], $25::int[],
				$26::int[],
			$27::int[], $28::timestamptz[], $29::bigint[], $30::timestamptz[])
		on conflict (id) do update set phase = excluded.phase, settled_at = excluded.settled_at,
			failure_code = excluded.failure_code,
			failure_message = excluded.failure_message, failure_open = excluded.failure_open, round = excluded.round,
			ingestions = excluded.ingestions, bytes = excluded.bytes, credit_tenths = excluded.credit_tenths,
				fanned_out = excluded.fanned_out, deleted_at = excluded.deleted_at, final_phase = excluded.final_phase,
				final_at = excluded.final_at,
			queued = excluded.queued, processing = excluded.processing,
			captured = excluded.captured, failed = excluded.failed, open_failures = excluded.open_failures,
				unchanged = excluded.unchanged,
			deleted = excluded.deleted, last_deleted_at = excluded.last_deleted_at,
			position = excluded.position, searchable_at = excluded.searchable_at`
	upsertSendsWithoutItems = `insert into sends_without_items (id, project_id, final_phase, final_at, failure_code, failure_message,
			round, deleted_at)
		select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[], $5::text[], $6::text[], $7::int[],
			$8::timestamptz[])
		on conflict (id) do update set final_phase = excluded.final_phase, final_at = excluded.final_at,
			failure_code = excluded.failure_code, failure_message = excluded.failure_message, round = excluded.round,
				deleted_at = excluded.deleted_at`
	deleteSendsWithoutItems = `delete from sends_without_items where id = any($1::uuid[])`

	insertBatches = `insert into batches (id, data_points, bytes)
		select id, array_agg(data_point order by ordinal), array_agg(bytes order by ordinal)
		from unnest($1::uuid[], $2::int[], $3::uuid[], $4::bigint[]) as b (id, ordinal, data_point, bytes) group by id
		on conflict (id) do nothing`
	deleteBatches   = `delete from batches where id = any($1::uuid[])`
	upsertDeletions = `insert into deletions (id, project_id, ingestion_id, accepted_at, fanned_out, cleaned, position)
		select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::boolean[], $6::boolean[],
			$7::bigint[])
		on conflict (id) do update set fanned_out = excluded.fanned_out, cleaned = excluded.cleaned`
	upsertErasures = `insert into erasures (data_point, project_id, deletion_id, facts_kept, blobs, position)
		select data_point, project_id, deletion_id, facts_kept, blobs::jsonb, position
		from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::boolean[], $5::text[], $6::bigint[])
			as e (data_point, project_id, deletion_id, facts_kept, blobs, position)
		on conflict (data_point) do update set facts_kept = excluded.facts_kept, blobs = excluded.blobs`
	deleteErasures = `delete from erasures where deletion_id = any($1::uuid[])`
)

// save writes the changed rows in one round trip.
func (f *fold) save(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	f.saveSends(b)
	moved := f.assignLanes()
	f.saveItems(b)
	saveMovedHeads(b, moved)
	f.countBulk(b)
	f.saveBatches(b)
	f.saveBlobs(b)
	f.saveDamage(b)
	if err := f.saveDataPoints(b); err != nil {
		return err
	}
	if err := f.saveDeletions(b); err != nil {
		return err
	}
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("write the rows of the page: %w", err)
	}
	return nil
}

// filter returns the rows that match.
func filter[K comparable, R any](rows map[K]R, changed func(R) bool) []R {
	var matching []R
	for _, row := range rows {
		if changed(row) {
			matching = append(matching, row)
		}
	}
	return matching
}

func (f *fold) saveItems(b *pgx.Batch) {
	rows := filter(f.items, func(i *item) bool { return i.dirty })
	if len(rows) == 0 {
		return
	}
	b.Queue(upsertItems,
		pgarray.IDs(rows, func(i *item) uuid.UUID { return i.send }),
		pgarray.Column(rows, func(i *item) int32 { return int32(i.ordinal) }),
		pgarray.IDs(rows, func(i *item) uuid.UUID { return i.project }),
		pgarray.IDs(rows, func(i *item) uuid.UUID { return i.dataPoint }),
		pgarray.Column(rows, func(i *item) int32 { return int32(i.revision) }),
		pgarray.Column(rows, func(i *item) bool { return i.historic }),
		pgarray.Column(rows, func(i *item) string { return i.outcome }),
		pgarray.Column(rows, func(i *item) string { return i.phase }),
		pgarray.Column(rows, func(i *item) int32 { return int32(i.attempt) }),
		pgarray.Column(rows, func(i *item) *string { return i.code }),
		pgarray.Column(rows, func(i *item) *string { return i.message }),
		pgarray.Column(rows, func(i *item) bool { return i.overtaken }),
		pgarray.Column(rows, func(i *item) *time.Time { return i.deletedAt }),
		pgarray.Column(rows, func(i *item) bool { return i.outdated }),
		pgarray.Column(rows, func(i *item) int64 { return int64(i.position) }),
		pgarray.Column(rows, func(i *item) bool { return i.batch }),
		pgarray.Column(rows, func(i *item) int64 { return i.bytes }),
		pgarray.Column(rows, func(i *item) *string { return pgarray.Optional(string(i.due)) }))
}

func (f *fold) saveSends(b *pgx.Batch) {
	var found []uuid.UUID
	for _, s := range f.sends {
		if s.dirty && s.known && s.stored == inSendsWithoutItems {
			found = append(found, s.id)
		}
	}
	if rows := filter(f.sends, func(s *send) bool { return s.dirty && s.known }); len(rows) > 0 {
		queueSends(b, rows)
	}
	if rows := filter(f.sends, func(s *send) bool { return s.dirty && !s.known }); len(rows) > 0 {
		b.Queue(upsertSendsWithoutItems,
			pgarray.IDs(rows, func(s *send) uuid.UUID { return s.id }),
			pgarray.IDs(rows, func(s *send) uuid.UUID { return s.project }),
			pgarray.Column(rows, func(s *send) string { return s.finalPhase }),
			pgarray.Column(rows, func(s *send) *time.Time { return s.finalAt }),
			pgarray.Column(rows, func(s *send) *string { return s.code }),
			pgarray.Column(rows, func(s *send) *string { return s.message }),
			pgarray.Column(rows, func(s *send) int32 { return int32(s.round) }),
			pgarray.Column(rows, func(s *send) *time.Time { return s.deletedAt }))
	}
	if len(found) > 0 {
		b.Queue(deleteSendsWithoutItems, found)
	}
	f.countSends(b)
}

func queueSends(b *pgx.Batch, rows []*send) {
	b.Queue(upsertSends,
		pgarray.IDs(rows, func(s *send) uuid.UUID { return s.id }),
		pgarray.IDs(rows, func(s *send) uuid.UUID { return s.project }),
		pgarray.IDs(rows, func(s *send) uuid.UUID { return s.request }),
		pgarray.Column(rows, func(s *send) time.Time { return s.acceptedAt }),
		pgarray.Column(rows, func(s *send) int32 { return int32(s.items) }),
		pgarray.Column(rows, func(s *send) bool { return s.batch }),
		pgarray.Column(rows, func(s *send) string { return s.phase }),
		pgarray.Column(rows, func(s *send) *time.Time { return s.settledAt }),
		pgarray.Column(rows, func(s *send) *string { code, _ := s.failure(); return code }),
		pgarray.Column(rows, func(s *send) *string { _, message := s.failure(); return message }),
		pgarray.Column(rows, func(s *send) bool { return s.failureOpen }),
		pgarray.Column(rows, func(s *send) int32 { return int32(s.round) }),
		pgarray.Column(rows, func(s *send) int32 { return int32(s.ingestions) }),
		pgarray.Column(rows, func(s *send) int64 { return s.bytes }),
		pgarray.Column(rows, func(s *send) int64 { return s.creditTenths }),
		pgarray.Column(rows, func(s *send) string { return s.month }),
		pgarray.Column(rows, func(s *send) bool { return s.fannedOut }),
		pgarray.Column(rows, func(s *send) *time.Time { return s.deletedAt }),
		pgarray.Column(rows, func(s *send) string { return s.finalPhase }),
		pgarray.Column(rows, func(s *send) *time.Time { return s.finalAt }),
		pgarray.Column(rows, func(s *send) int32 { return int32(s.queued) }),
		pgarray.Column(rows, func(s *send) int32 { return int32(s.processing) }),
		pgarray.Column(rows, func(s *send) int32 { return int32(s.captured) }),
		pgarray.Column(rows, func(s *send) int32 { return int32(s.failed) }),
		pgarray.Column(rows, func(s *send) int32 { return int32(s.openFailures) }),
		pgarray.Column(rows, func(s *send) int32 { return int32(s.unchanged) }),
		pgarray.Column(rows, func(s *send) int32 { return int32(s.deleted) }),
		pgarray.Column(rows, func(s *send) *time.Time { return s.lastDeletedAt }),
		pgarray.Column(rows, func(s *send) int64 { return int64(s.position) }),
		pgarray.Column(rows, func(s *send) *time.Time { return s.searchableAt }))
}

func encode[V blob.Ref | []string](v V) (*string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode a column: %w", err)
	}
	text := string(data)
	return &text, nil
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

func (f *fold) saveDeletions(b *pgx.Batch) error {
	if rows := filter(f.deletions, func(d *deletionRow) bool { return d.dirty }); len(rows) > 0 {
		b.Queue(upsertDeletions,
			pgarray.IDs(rows, func(d *deletionRow) uuid.UUID { return d.id }),
			pgarray.IDs(rows, func(d *deletionRow) uuid.UUID { return d.project }),
			pgarray.Column(rows, func(d *deletionRow) *uuid.UUID { return pgarray.Optional(d.send) }),
			pgarray.Column(rows, func(d *deletionRow) time.Time { return d.acceptedAt }),
			pgarray.Column(rows, func(d *deletionRow) bool { return d.fannedOut }),
			pgarray.Column(rows, func(d *deletionRow) bool { return d.cleaned }),
			pgarray.Column(rows, func(d *deletionRow) int64 { return int64(d.position) }))
	}
	if rows := filter(f.erasures, func(e *erasure) bool { return e.dirty }); len(rows) > 0 {
		blobs := make([]*string, len(rows))
		for n, e := range rows {
			names := e.blobs
			if names == nil {
				names = []string{}
			}
			var err error
			if blobs[n], err = encode(names); err != nil {
				return err
			}
		}
		b.Queue(upsertErasures,
			pgarray.IDs(rows, func(e *erasure) uuid.UUID { return e.dataPoint }),
			pgarray.IDs(rows, func(e *erasure) uuid.UUID { return e.project }),
			pgarray.IDs(rows, func(e *erasure) uuid.UUID { return e.deletion }),
			pgarray.Column(rows, func(e *erasure) bool { return e.factsKept }),
			blobs,
			pgarray.Column(rows, func(e *erasure) int64 { return int64(e.position) }))
	}
	if len(f.cleaned) > 0 {
		b.Queue(deleteErasures, pgarray.Keys(f.cleaned))
	}
	return nil
}
