package datapoints

import (
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections"
)

const (
	upsertDataPoints = `insert into data_points (id, project_id, source_id, revision, captured, memories, audience,
		occurred_at, ingestion_id,
			accepted_at, position, memory_head, author, label_key,
			label, size, metadata_size, content_blob, tokens, traits, stems, exact)
		select id, project_id, source_id, revision, captured, memories, audience, occurred_at, ingestion_id,
			accepted_at, position, memory_head, author, label_key,
			label, size, metadata_size, content_blob::jsonb, tokens, traits, stems, exact
		from unnest($1::uuid[], $2::uuid[], $3::text[], $4::int[], $5::int[], $6::int[], $7::uuid[],
			$8::timestamptz[], $9::uuid[],
			$10::timestamptz[], $11::bigint[], $12::bigint[], $13::text[], $14::text[],
			$15::text[], $16::bigint[], $17::bigint[], $18::text[], $19::int[], $20::smallint[], $21::bigint[], $22::bigint[])
			as d (id, project_id, source_id, revision, captured, memories, audience, occurred_at, ingestion_id,
				accepted_at, position, memory_head, author, label_key,
				label, size, metadata_size, content_blob, tokens, traits, stems, exact)
		on conflict (id) do update set revision = excluded.revision, captured = excluded.captured,
			memories = excluded.memories, audience = excluded.audience,
			occurred_at = excluded.occurred_at, ingestion_id = excluded.ingestion_id, accepted_at = excluded.accepted_at,
				position = excluded.position, memory_head = excluded.memory_head, author = excluded.author,
				label_key = excluded.label_key, label = excluded.label, size = excluded.size,
				metadata_size = excluded.metadata_size, content_blob = excluded.content_blob, tokens = excluded.tokens,
				traits = excluded.traits, stems = excluded.stems, exact = excluded.exact`
	insertRevisions = `insert into revisions (data_point, number, project_id, node_id, historic, content,
		content_blob, metadata,
			metadata_blob, label, author, occurred_at, ingestion_id, accepted_at, audience, tokens)
		select data_point, number, project_id, node_id, historic, content, content_blob::jsonb, metadata,
			metadata_blob::jsonb, label, author,
			occurred_at, ingestion_id, accepted_at, audience, tokens
		from unnest($1::uuid[], $2::int[], $3::uuid[], $4::uuid[], $5::boolean[], $6::bytea[], $7::text[], $8::text[],
			$9::text[], $10::text[],
			$11::text[], $12::timestamptz[], $13::uuid[], $14::timestamptz[], $15::uuid[], $16::int[])
			as r (data_point, number, project_id, node_id, historic, content, content_blob, metadata, metadata_blob, label,
				author,
				occurred_at, ingestion_id, accepted_at, audience, tokens)
		on conflict (data_point, number) do nothing`
	updateAudiences = `update revisions r set audience = m.audience from unnest($1::uuid[], $2::int[], $3::uuid[])
		as m (data_point, number, audience)
		where r.data_point = m.data_point and r.number = m.number`
	deleteDataPoints = `delete from data_points where id = any($1::uuid[])`
	// deleteRevisions deletes the few revisions of each data point. The rest of one with more has a follow-up.
	deleteRevisions = `delete from revisions r using unnest($1::uuid[]) k (id) cross join lateral (
			select data_point, number from revisions where data_point = k.id order by number limit $2
		) d where r.data_point = d.data_point and r.number = d.number`
)

func (f *fold) saveDataPoints(b *pgx.Batch) error {
	f.countDataPoints(b)
	if len(f.removed)+len(f.unlisted) > 0 {
		b.Queue(deleteDataPoints, slices.Concat(pgarray.Keys(f.removed), pgarray.Keys(f.unlisted)))
	}
	if len(f.removed) > 0 {
		b.Queue(deleteRevisions, pgarray.Keys(f.removed), f.most)
	}
	projections.QueueFollowUps(b, Name, slices.Collect(maps.Values(f.followUps)))
	if rows := filter(f.dataPoints, func(d *dataPointRow) bool { return d.dirty }); len(rows) > 0 {
		blobs, err := pointersOf(rows)
		if err != nil {
			return err
		}
		b.Queue(upsertDataPoints,
			pgarray.IDs(rows, func(d *dataPointRow) uuid.UUID { return d.id }),
			pgarray.IDs(rows, func(d *dataPointRow) uuid.UUID { return d.project }),
			pgarray.Column(rows, func(d *dataPointRow) string { return d.sourceID }),
			pgarray.Column(rows, func(d *dataPointRow) int32 { return int32(d.revision) }),
			pgarray.Column(rows, func(d *dataPointRow) int32 { return int32(d.captured) }),
			pgarray.Column(rows, func(d *dataPointRow) int32 { return int32(d.memories) }),
			pgarray.IDs(rows, func(d *dataPointRow) uuid.UUID { return d.audience }),
			pgarray.Column(rows, func(d *dataPointRow) time.Time { return d.occurredAt }),
			pgarray.IDs(rows, func(d *dataPointRow) uuid.UUID { return d.send }),
			pgarray.Column(rows, func(d *dataPointRow) time.Time { return d.acceptedAt }),
			pgarray.Column(rows, func(d *dataPointRow) int64 { return int64(d.position) }),
			pgarray.Column(rows, func(d *dataPointRow) *int64 { return d.memoryHead }),
			pgarray.Column(rows, func(d *dataPointRow) *string { return d.author }),
			pgarray.Column(rows, func(d *dataPointRow) *string { return d.labelKey }),
			pgarray.Column(rows, func(d *dataPointRow) *string { return d.label }),
			pgarray.Column(rows, func(d *dataPointRow) int64 { return d.size }),
			pgarray.Column(rows, func(d *dataPointRow) int64 { return d.metadataSize }),
			blobs,
			pgarray.Column(rows, func(d *dataPointRow) *int32 { return d.tokens }),
			pgarray.Column(rows, func(d *dataPointRow) int16 { return d.traits }),
			pgarray.Column(rows, func(d *dataPointRow) int64 { return d.stems }),
			pgarray.Column(rows, func(d *dataPointRow) int64 { return d.exact }))
	}
	if err := f.saveRevisions(b); err != nil {
		return err
	}
	f.saveMovedAudiences(b)
	return nil
}

// saveMovedAudiences writes the moves of the page. It runs after its new revisions are inserted.
func (f *fold) saveMovedAudiences(b *pgx.Batch) {
	if len(f.movedAudiences) == 0 {
		return
	}
	keys := slices.Collect(maps.Keys(f.movedAudiences))
	b.Queue(updateAudiences,
		pgarray.IDs(keys, func(k revisionKey) uuid.UUID { return k.dataPoint }),
		pgarray.Column(keys, func(k revisionKey) int32 { return int32(k.number) }),
		pgarray.Column(keys, func(k revisionKey) *uuid.UUID { return f.movedAudiences[k] }))
}

func (f *fold) saveRevisions(b *pgx.Batch) error {
	rows := f.revisions
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
		pgarray.IDs(rows, func(r revision) uuid.UUID { return r.dataPoint }),
		pgarray.Column(rows, func(r revision) int32 { return int32(r.event.Effect.Revision) }),
		pgarray.IDs(rows, func(r revision) uuid.UUID { return r.event.ProjectID }),
		pgarray.IDs(rows, func(r revision) uuid.UUID { return datapoint.NodeID(r.dataPoint, r.event.Effect.Revision) }),
		pgarray.Column(rows, func(r revision) bool { return r.event.Historic() }),
		pgarray.Column(rows, func(r revision) []byte {
			if r.event.Content.Blob != nil {
				return nil
			}
			return []byte(r.event.Content.Inline)
		}),
		contentBlobs,
		pgarray.Column(rows, func(r revision) *string {
			if r.event.Metadata == nil || r.event.Metadata.Blob != nil {
				return nil
			}
			return &r.event.Metadata.Inline
		}),
		metadataBlobs,
		pgarray.Column(rows, func(r revision) *string { return r.event.Effect.Label }),
		pgarray.Column(rows, func(r revision) *string { return pgarray.Optional(r.event.Author) }),
		pgarray.Column(rows, func(r revision) time.Time { return pgarray.Instant(r.event.Effect.OccurredAt) }),
		pgarray.IDs(rows, func(r revision) uuid.UUID { return r.event.IngestionID }),
		pgarray.Column(rows, func(r revision) time.Time { return pgarray.Instant(r.event.AcceptedAt) }),
		pgarray.IDs(rows, func(r revision) uuid.UUID { return r.event.Effect.Audience }),
		pgarray.Column(rows, func(r revision) *int32 {
			if r.event.Content.Blob != nil {
				return nil
			}
			tokens := int32(recall.Tokens(r.event.Content.Inline))
			return &tokens
		}))
	return nil
}

// reference encodes the blob of a text as JSON. It returns nil for an inline text.
func reference(t *datapoint.Text) (*string, error) {
	if t == nil || t.Blob == nil {
		return nil, nil //nolint:nilnil // null is what no blob is
	}
	return encode(*t.Blob)
}
