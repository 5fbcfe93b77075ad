package datapoints

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/unnest"
)

const (
	upsertItems = `insert into items (ingestion_id, ordinal, project_id, data_point, revision, historic, outcome, phase, attempt,
			failure_code, failure_message, moot, deleted_at, superseded, position)
		select * from unnest($1::uuid[], $2::int[], $3::uuid[], $4::uuid[], $5::int[], $6::boolean[], $7::text[], $8::text[], $9::int[],
			$10::text[], $11::text[], $12::boolean[], $13::timestamptz[], $14::boolean[], $15::bigint[])
		on conflict (ingestion_id, ordinal) do update set revision = excluded.revision, historic = excluded.historic,
			outcome = excluded.outcome, phase = excluded.phase, attempt = excluded.attempt, failure_code = excluded.failure_code,
			failure_message = excluded.failure_message, moot = excluded.moot, deleted_at = excluded.deleted_at,
			superseded = excluded.superseded, position = excluded.position`
	upsertSends = `insert into sends (id, project_id, request_id, accepted_at, item_count, batch, phase, settled_at,
			failure_code, failure_message, failure_stands, round, ingestions, bytes, credit_tenths, month, fanned_out, deleted_at, verdict, verdict_at,
			queued, processing, captured, failed, standing, unchanged, deleted, last_deleted_at, position, searchable_at)
		select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::int[], $6::boolean[], $7::text[], $8::timestamptz[],
			$9::text[], $10::text[], $11::boolean[], $12::int[], $13::int[], $14::bigint[], $15::bigint[], $16::text[], $17::boolean[],
			$18::timestamptz[], $19::text[], $20::timestamptz[], $21::int[], $22::int[], $23::int[], $24::int[], $25::int[], $26::int[],
			$27::int[], $28::timestamptz[], $29::bigint[], $30::timestamptz[])
		on conflict (id) do update set phase = excluded.phase, settled_at = excluded.settled_at, failure_code = excluded.failure_code,
			failure_message = excluded.failure_message, failure_stands = excluded.failure_stands, round = excluded.round,
			ingestions = excluded.ingestions, bytes = excluded.bytes, credit_tenths = excluded.credit_tenths, fanned_out = excluded.fanned_out, deleted_at = excluded.deleted_at, verdict = excluded.verdict, verdict_at = excluded.verdict_at,
			queued = excluded.queued, processing = excluded.processing,
			captured = excluded.captured, failed = excluded.failed, standing = excluded.standing, unchanged = excluded.unchanged,
			deleted = excluded.deleted, last_deleted_at = excluded.last_deleted_at,
			position = excluded.position, searchable_at = excluded.searchable_at`
	upsertVerdicts = `insert into verdicts (id, project_id, verdict, verdict_at, failure_code, failure_message,
			round, deleted_at)
		select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[], $5::text[], $6::text[], $7::int[], $8::timestamptz[])
		on conflict (id) do update set verdict = excluded.verdict, verdict_at = excluded.verdict_at,
			failure_code = excluded.failure_code, failure_message = excluded.failure_message, round = excluded.round, deleted_at = excluded.deleted_at`
	deleteVerdicts = `delete from verdicts where id = any($1::uuid[])`

	upsertPoints = `insert into data_points (id, project_id, source_id, revision, captured, memories, audience, occurred_at, ingestion_id,
			accepted_at, position)
		select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::int[], $5::int[], $6::int[], $7::uuid[], $8::timestamptz[], $9::uuid[],
			$10::timestamptz[], $11::bigint[])
		on conflict (id) do update set revision = excluded.revision, captured = excluded.captured, memories = excluded.memories, audience = excluded.audience,
			occurred_at = excluded.occurred_at, ingestion_id = excluded.ingestion_id, accepted_at = excluded.accepted_at, position = excluded.position`
	insertRevisions = `insert into revisions (data_point, number, project_id, node_id, historic, content, content_blob, metadata,
			metadata_blob, label, author, occurred_at, ingestion_id, accepted_at, audience, tokens)
		select data_point, number, project_id, node_id, historic, content, content_blob::jsonb, metadata, metadata_blob::jsonb, label, author,
			occurred_at, ingestion_id, accepted_at, audience, tokens
		from unnest($1::uuid[], $2::int[], $3::uuid[], $4::uuid[], $5::boolean[], $6::bytea[], $7::text[], $8::text[], $9::text[], $10::text[],
			$11::text[], $12::timestamptz[], $13::uuid[], $14::timestamptz[], $15::uuid[], $16::int[])
			as r (data_point, number, project_id, node_id, historic, content, content_blob, metadata, metadata_blob, label, author,
				occurred_at, ingestion_id, accepted_at, audience, tokens)
		on conflict (data_point, number) do nothing`
	updateScopings = `update revisions r set audience = m.audience from unnest($1::uuid[], $2::int[], $3::uuid[]) as m (data_point, number, audience)
		where r.data_point = m.data_point and r.number = m.number`
	deletePoints    = `delete from data_points where id = any($1::uuid[])`
	deleteRevisions = `delete from revisions where data_point = any($1::uuid[])`

	insertBatches = `insert into batches (id, data_points, bytes)
		select id, array_agg(data_point order by ordinal), array_agg(bytes order by ordinal)
		from unnest($1::uuid[], $2::int[], $3::uuid[], $4::bigint[]) as b (id, ordinal, data_point, bytes) group by id
		on conflict (id) do nothing`
	deleteBatches   = `delete from batches where id = any($1::uuid[])`
	upsertDeletions = `insert into deletions (id, project_id, ingestion_id, accepted_at, fanned_out, cleaned, position)
		select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::boolean[], $6::boolean[], $7::bigint[])
		on conflict (id) do update set fanned_out = excluded.fanned_out, cleaned = excluded.cleaned`
	upsertErasures = `insert into erasures (data_point, project_id, deletion_id, facts_kept, blobs, position)
		select data_point, project_id, deletion_id, facts_kept, blobs::jsonb, position
		from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::boolean[], $5::text[], $6::bigint[])
			as e (data_point, project_id, deletion_id, facts_kept, blobs, position)
		on conflict (data_point) do update set facts_kept = excluded.facts_kept, blobs = excluded.blobs`
	deleteErasures = `delete from erasures where deletion_id = any($1::uuid[])`
)

// save writes the rows that the page changed, in one round trip.
func (p *page) save(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	p.saveSends(b)
	p.saveItems(b)
	p.saveBatches(b)
	p.saveBlobs(b)
	if err := p.savePoints(b); err != nil {
		return err
	}
	if err := p.saveDeletions(b); err != nil {
		return err
	}
	if err := unnest.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("write the rows of the page: %w", err)
	}
	return nil
}

// dirty picks what the page changed.
func dirty[K comparable, R any](rows map[K]R, changed func(R) bool) []R {
	var kept []R
	for _, row := range rows {
		if changed(row) {
			kept = append(kept, row)
		}
	}
	return kept
}

func (p *page) saveItems(b *pgx.Batch) {
	rows := dirty(p.items, func(i *item) bool { return i.dirty })
	if len(rows) == 0 {
		return
	}
	b.Queue(upsertItems,
		unnest.IDs(rows, func(i *item) uuid.UUID { return i.send }),
		unnest.Column(rows, func(i *item) int32 { return int32(i.ordinal) }),
		unnest.IDs(rows, func(i *item) uuid.UUID { return i.project }),
		unnest.IDs(rows, func(i *item) uuid.UUID { return i.dataPoint }),
		unnest.Column(rows, func(i *item) int32 { return int32(i.revision) }),
		unnest.Column(rows, func(i *item) bool { return i.historic }),
		unnest.Column(rows, func(i *item) string { return i.outcome }),
		unnest.Column(rows, func(i *item) string { return i.phase }),
		unnest.Column(rows, func(i *item) int32 { return int32(i.attempt) }),
		unnest.Column(rows, func(i *item) *string { return i.code }),
		unnest.Column(rows, func(i *item) *string { return i.message }),
		unnest.Column(rows, func(i *item) bool { return i.moot }),
		unnest.Column(rows, func(i *item) *time.Time { return i.deletedAt }),
		unnest.Column(rows, func(i *item) bool { return i.superseded }),
		unnest.Column(rows, func(i *item) int64 { return int64(i.position) }))
}

func (p *page) saveSends(b *pgx.Batch) {
	var found []uuid.UUID
	for _, s := range p.sends {
		if s.dirty && s.known && s.stored == inVerdicts {
			found = append(found, s.id)
		}
	}
	if rows := dirty(p.sends, func(s *send) bool { return s.dirty && s.known }); len(rows) > 0 {
		queueSends(b, rows)
	}
	if rows := dirty(p.sends, func(s *send) bool { return s.dirty && !s.known }); len(rows) > 0 {
		b.Queue(upsertVerdicts,
			unnest.IDs(rows, func(s *send) uuid.UUID { return s.id }),
			unnest.IDs(rows, func(s *send) uuid.UUID { return s.project }),
			unnest.Column(rows, func(s *send) string { return s.verdict }),
			unnest.Column(rows, func(s *send) *time.Time { return s.verdictAt }),
			unnest.Column(rows, func(s *send) *string { return s.code }),
			unnest.Column(rows, func(s *send) *string { return s.message }),
			unnest.Column(rows, func(s *send) int32 { return int32(s.round) }),
			unnest.Column(rows, func(s *send) *time.Time { return s.deletedAt }))
	}
	if len(found) > 0 {
		b.Queue(deleteVerdicts, found)
	}
	p.countSends(b)
}

func queueSends(b *pgx.Batch, rows []*send) {
	b.Queue(upsertSends,
		unnest.IDs(rows, func(s *send) uuid.UUID { return s.id }),
		unnest.IDs(rows, func(s *send) uuid.UUID { return s.project }),
		unnest.IDs(rows, func(s *send) uuid.UUID { return s.request }),
		unnest.Column(rows, func(s *send) time.Time { return s.acceptedAt }),
		unnest.Column(rows, func(s *send) int32 { return int32(s.items) }),
		unnest.Column(rows, func(s *send) bool { return s.batch }),
		unnest.Column(rows, func(s *send) string { return s.phase }),
		unnest.Column(rows, func(s *send) *time.Time { return s.settledAt }),
		unnest.Column(rows, func(s *send) *string { code, _ := s.failure(); return code }),
		unnest.Column(rows, func(s *send) *string { _, message := s.failure(); return message }),
		unnest.Column(rows, func(s *send) bool { return s.stands }),
		unnest.Column(rows, func(s *send) int32 { return int32(s.round) }),
		unnest.Column(rows, func(s *send) int32 { return int32(s.ingestions) }),
		unnest.Column(rows, func(s *send) int64 { return s.bytes }),
		unnest.Column(rows, func(s *send) int64 { return s.creditTenths }),
		unnest.Column(rows, func(s *send) string { return s.month }),
		unnest.Column(rows, func(s *send) bool { return s.fannedOut }),
		unnest.Column(rows, func(s *send) *time.Time { return s.deletedAt }),
		unnest.Column(rows, func(s *send) string { return s.verdict }),
		unnest.Column(rows, func(s *send) *time.Time { return s.verdictAt }),
		unnest.Column(rows, func(s *send) int32 { return int32(s.queued) }),
		unnest.Column(rows, func(s *send) int32 { return int32(s.processing) }),
		unnest.Column(rows, func(s *send) int32 { return int32(s.captured) }),
		unnest.Column(rows, func(s *send) int32 { return int32(s.failed) }),
		unnest.Column(rows, func(s *send) int32 { return int32(s.standing) }),
		unnest.Column(rows, func(s *send) int32 { return int32(s.unchanged) }),
		unnest.Column(rows, func(s *send) int32 { return int32(s.deleted) }),
		unnest.Column(rows, func(s *send) *time.Time { return s.lastDeletedAt }),
		unnest.Column(rows, func(s *send) int64 { return int64(s.position) }),
		unnest.Column(rows, func(s *send) *time.Time { return s.searchableAt }))
}

func (p *page) savePoints(b *pgx.Batch) error {
	p.countPoints(b)
	if len(p.forgotten) > 0 {
		gone := unnest.Keys(p.forgotten)
		b.Queue(deletePoints, gone)
		b.Queue(deleteRevisions, gone)
	}
	if rows := dirty(p.points, func(d *point) bool { return d.dirty }); len(rows) > 0 {
		b.Queue(upsertPoints,
			unnest.IDs(rows, func(d *point) uuid.UUID { return d.id }),
			unnest.IDs(rows, func(d *point) uuid.UUID { return d.project }),
			unnest.Column(rows, func(d *point) string { return d.sourceID }),
			unnest.Column(rows, func(d *point) int32 { return int32(d.revision) }),
			unnest.Column(rows, func(d *point) int32 { return int32(d.captured) }),
			unnest.Column(rows, func(d *point) int32 { return int32(d.memories) }),
			unnest.IDs(rows, func(d *point) uuid.UUID { return d.audience }),
			unnest.Column(rows, func(d *point) time.Time { return d.occurredAt }),
			unnest.IDs(rows, func(d *point) uuid.UUID { return d.send }),
			unnest.Column(rows, func(d *point) time.Time { return d.acceptedAt }),
			unnest.Column(rows, func(d *point) int64 { return int64(d.position) }))
	}
	if err := p.saveRevisions(b); err != nil {
		return err
	}
	p.saveScopings(b)
	return nil
}

// saveScopings writes the moves of the page, after the revisions that it brought.
func (p *page) saveScopings(b *pgx.Batch) {
	if len(p.scopings) == 0 {
		return
	}
	keys := slices.Collect(maps.Keys(p.scopings))
	b.Queue(updateScopings,
		unnest.IDs(keys, func(k revisionKey) uuid.UUID { return k.dataPoint }),
		unnest.Column(keys, func(k revisionKey) int32 { return int32(k.number) }),
		unnest.Column(keys, func(k revisionKey) *uuid.UUID { return p.scopings[k] }))
}

func (p *page) saveRevisions(b *pgx.Batch) error {
	rows := p.revisions
	if len(rows) == 0 {
		return nil
	}
	contentBlobs, metadataBlobs := make([]*string, len(rows)), make([]*string, len(rows))
	for n, r := range rows {
		var err error
		if contentBlobs[n], err = reference(&r.event.Content); err != nil {
			return err
		}
		if metadataBlobs[n], err = reference(r.event.Metadata); err != nil {
			return err
		}
	}
	b.Queue(insertRevisions,
		unnest.IDs(rows, func(r revision) uuid.UUID { return r.dataPoint }),
		unnest.Column(rows, func(r revision) int32 { return int32(r.event.Effect.Revision) }),
		unnest.IDs(rows, func(r revision) uuid.UUID { return r.event.ProjectID }),
		unnest.IDs(rows, func(r revision) uuid.UUID { return datapoint.NodeID(r.dataPoint, r.event.Effect.Revision) }),
		unnest.Column(rows, func(r revision) bool { return r.event.Historic() }),
		unnest.Column(rows, func(r revision) []byte {
			if r.event.Content.Blob != nil {
				return nil
			}
			return []byte(r.event.Content.Inline)
		}),
		contentBlobs,
		unnest.Column(rows, func(r revision) *string {
			if r.event.Metadata == nil || r.event.Metadata.Blob != nil {
				return nil
			}
			return &r.event.Metadata.Inline
		}),
		metadataBlobs,
		unnest.Column(rows, func(r revision) *string { return r.event.Effect.Label }),
		unnest.Column(rows, func(r revision) *string { return unnest.Optional(r.event.Author) }),
		unnest.Column(rows, func(r revision) time.Time { return unnest.Instant(r.event.Effect.OccurredAt) }),
		unnest.IDs(rows, func(r revision) uuid.UUID { return r.event.IngestionID }),
		unnest.Column(rows, func(r revision) time.Time { return unnest.Instant(r.event.AcceptedAt) }),
		unnest.IDs(rows, func(r revision) uuid.UUID { return r.event.Effect.Audience }),
		unnest.Column(rows, func(r revision) *int32 {
			if r.event.Content.Blob != nil {
				return nil
			}
			tokens := int32(recall.Tokens(r.event.Content.Inline))
			return &tokens
		}))
	return nil
}

// reference is the blob of a text as JSON, nil for none.
func reference(t *datapoint.Text) (*string, error) {
	if t == nil || t.Blob == nil {
		return nil, nil //nolint:nilnil // null is what no blob is
	}
	return encode(*t.Blob)
}

func encode[V blob.Ref | []string](v V) (*string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode a column: %w", err)
	}
	text := string(data)
	return &text, nil
}

// saveBatches keeps the items of what is committed and not fanned out yet.
func (p *page) saveBatches(b *pgx.Batch) {
	var closed []uuid.UUID
	var ids, dataPoints [][16]byte
	var ordinals []int32
	var bytes []int64
	for id, list := range p.batches {
		_, opened := p.opened[id]
		if list == nil && !opened {
			closed = append(closed, id)
		}
		if opened {
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

func (p *page) saveDeletions(b *pgx.Batch) error {
	if rows := dirty(p.deletions, func(d *deletionRow) bool { return d.dirty }); len(rows) > 0 {
		b.Queue(upsertDeletions,
			unnest.IDs(rows, func(d *deletionRow) uuid.UUID { return d.id }),
			unnest.IDs(rows, func(d *deletionRow) uuid.UUID { return d.project }),
			unnest.Column(rows, func(d *deletionRow) *[16]byte { return (*[16]byte)(unnest.Optional(d.send)) }),
			unnest.Column(rows, func(d *deletionRow) time.Time { return d.acceptedAt }),
			unnest.Column(rows, func(d *deletionRow) bool { return d.fannedOut }),
			unnest.Column(rows, func(d *deletionRow) bool { return d.cleaned }),
			unnest.Column(rows, func(d *deletionRow) int64 { return int64(d.position) }))
	}
	if rows := dirty(p.erasures, func(e *erasure) bool { return e.dirty }); len(rows) > 0 {
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
			unnest.IDs(rows, func(e *erasure) uuid.UUID { return e.dataPoint }),
			unnest.IDs(rows, func(e *erasure) uuid.UUID { return e.project }),
			unnest.IDs(rows, func(e *erasure) uuid.UUID { return e.deletion }),
			unnest.Column(rows, func(e *erasure) bool { return e.factsKept }),
			blobs,
			unnest.Column(rows, func(e *erasure) int64 { return int64(e.position) }))
	}
	if len(p.cleaned) > 0 {
		b.Queue(deleteErasures, unnest.Keys(p.cleaned))
	}
	return nil
}
