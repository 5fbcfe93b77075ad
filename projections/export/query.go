package export

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/internal/pgarray"
)

// key is a data point of an export, with the revision that the export shows.
type key struct {
	Place
	id       uuid.UUID
	revision int
	// audience is the present one: what was narrowed since must not be exported as it was.
	audience uuid.UUID
	// size is that of its text, also in blobs. memories is about how many there are.
	size, memories int
}

// The first part lists data points whose newest revision is not newer than the export; the second one those that were
// revised since, with the newest revision of that time. Both read an index in order, and sort equal times only.
const selectKeys = `
	with unchanged as (
		select id, revision, occurred_at, source_id collate "C" as source_id, audience, memories from datapoints.data_points
		where project_id = $1 and accepted_at <= $2
			and occurred_at >= $3 and (occurred_at > $3 or source_id collate "C" > $4)
		order by occurred_at, source_id collate "C" limit $5
	), revised as (
		select d.id, r.number, r.occurred_at, d.source_id collate "C", d.audience, d.memories from datapoints.data_points d
		cross join lateral (
			select number, occurred_at from datapoints.revisions
			where data_point = d.id and accepted_at <= $2 and not historic order by number desc limit 1
		) r
		where d.project_id = $1 and d.accepted_at > $2
			and r.occurred_at >= $3 and (r.occurred_at > $3 or d.source_id collate "C" > $4)
		order by r.occurred_at, d.source_id collate "C" limit $5
	), listed as (
		select * from (select * from unchanged union all select * from revised) k order by occurred_at, source_id limit $5
	)
	select l.id, l.revision, l.occurred_at, l.source_id, l.audience, l.memories,
		coalesce(octet_length(r.content), (r.content_blob->>'size')::bigint, 0)
			+ coalesce(octet_length(r.metadata), (r.metadata_blob->>'size')::bigint, 0)
	from listed l
	cross join lateral (
		select content, content_blob, metadata, metadata_blob from datapoints.revisions
		where data_point = l.id and number = l.revision offset 0
	) r
	order by l.occurred_at, l.source_id`

// keys lists the next data points.
func (r Reader) keys(ctx context.Context, s Selection) ([]key, error) {
	var after Place
	if s.After != nil {
		after = *s.After
	}
	rows, err := r.DB.Query(ctx, selectKeys, s.Project, s.AsOf, after.OccurredAt, after.SourceID, keyCount)
	if err != nil {
		return nil, fmt.Errorf("list data points: %w", err)
	}
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k key, err error) {
		err = row.Scan(&k.id, &k.revision, &k.OccurredAt, &k.SourceID, &k.audience, &k.memories, &k.size)
		k.OccurredAt = k.OccurredAt.UTC()
		return k, err
	})
	if err != nil {
		return nil, fmt.Errorf("list data points: %w", err)
	}
	return keys, nil
}

// text is a revision as a line shows it.
type text struct {
	id                        uuid.UUID
	content, metadata         []byte
	contentBlob, metadataBlob *blob.Ref
	label, author             *string
	readers                   readers
}

const selectTexts = `select r.data_point, r.content, r.content_blob, r.metadata, r.metadata_blob, r.label, r.author
	from unnest($1::uuid[], $2::int[]) k (id, number)
	cross join lateral (select * from datapoints.revisions where data_point = k.id and number = k.number offset 0) r`

// texts reads revisions. Those of data points that were deleted since are missing.
func (r Reader) texts(ctx context.Context, keys []key) (map[uuid.UUID]*text, error) {
	found := make(map[uuid.UUID]*text, len(keys))
	rows, err := r.DB.Query(ctx, selectTexts, pgarray.IDs(keys, func(k key) uuid.UUID { return k.id }),
		pgarray.Column(keys, func(k key) int32 { return int32(k.revision) }))
	if err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		t := new(text)
		if err := rows.Scan(&t.id, &t.content, &t.contentBlob, &t.metadata, &t.metadataBlob, &t.label,
			&t.author); err != nil {
			return nil, fmt.Errorf("read texts: %w", err)
		}
		found[t.id] = t
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	return found, nil
}

// requireDeleted returns the error if a data point is live.
func (r Reader) requireDeleted(ctx context.Context, dataPoint uuid.UUID, lost error) error {
	var live bool
	err := r.DB.QueryRow(ctx, `select exists (select from datapoints.data_points where id = $1)`, dataPoint).Scan(&live)
	if err != nil {
		return fmt.Errorf("look for a data point: %w", err)
	}
	if live {
		return fmt.Errorf("text of a data point: %w", lost)
	}
	return nil
}

// readers names who reads what is in an audience: a slug, or the identity that it is private to.
type readers struct{ slug, identity string }

const selectReaders = `select slug, '' from directory.audiences where id = $1 and project_id = $2
	union all select '', identity from directory.identities
		where private = $1 and project_id = $2 and identity is not null`

// readersOf returns who reads a data point of an author, neither for project-visible. A removed audience has a name
// that no client can mistake for another one, so that the copy of its data points reaches nobody either. So has the
// private audience of another than the author, since a line names the author alone.
func (e *run) readersOf(ctx context.Context, id uuid.UUID, author *string) (r readers, err error) {
	if id == uuid.Nil {
		return r, nil
	}
	r, known := e.audiences[id]
	if !known {
		err = e.DB.QueryRow(ctx, selectReaders, id, e.Project).Scan(&r.slug, &r.identity)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return r, fmt.Errorf("find who reads an audience: %w", err)
		}
		e.audiences[id] = r
	}
	if r.slug == "" && (author == nil || r.identity != *author) {
		r = readers{slug: RemovedAudience + id.String()[24:]}
	}
	return r, nil
}

// RemovedAudience begins the slug of an audience that was removed, or that a line cannot name.
const RemovedAudience = "removed-"
