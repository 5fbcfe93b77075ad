package directory

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/unnest"
)

const (
	upsertHeads = `insert into heads (id, project_id, revision, position) select * from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[])
		on conflict (id) do update set revision = excluded.revision, position = excluded.position`
	deleteIdentities = `delete from identities where id = any($1::uuid[])`
	upsertIdentities = `insert into identities (id, project_id, identity, traits, marks, broad, origin, created_at, updated_at)
		select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::boolean[], $7::text[], $8::timestamptz[], $9::timestamptz[])
		on conflict (id) do update set identity = excluded.identity, traits = excluded.traits, marks = excluded.marks, broad = excluded.broad,
			origin = excluded.origin, created_at = excluded.created_at, updated_at = excluded.updated_at`
	// updateIdentities writes records whose traits stay.
	updateIdentities = `update identities i set identity = n.identity, origin = n.origin, created_at = n.created_at, updated_at = n.updated_at
		from unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[]) as n (id, identity, origin, created_at, updated_at)
		where i.id = n.id`
	deleteMarks = `delete from marks m using unnest($1::uuid[], $2::timestamptz[], $3::uuid[]) as o (mark, created_at, identity_id)
		where m.mark = o.mark and m.created_at = o.created_at and m.identity_id = o.identity_id`
	insertMarks = `insert into marks (mark, created_at, identity_id) select * from unnest($1::uuid[], $2::timestamptz[], $3::uuid[])
		on conflict (mark, created_at, identity_id) do nothing`
	closeBulkRows = `delete from bulk_rows r using unnest($1::uuid[], $2::uuid[]) as c (identity_id, bulk_id)
		where r.identity_id = c.identity_id and r.bulk_id = c.bulk_id`
	openBulkRows = `insert into bulk_rows (identity_id, bulk_id, project_id, position) select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[])
		on conflict (identity_id, bulk_id) do nothing`
)

// markRow is a row of table marks.
type markRow struct {
	mark      uuid.UUID
	createdAt time.Time
	identity  uuid.UUID
}

// changes are the rows of identities that a page changes.
type changes struct {
	heads          []*entry
	dropped        [][16]byte
	records        []*entry // with traits that are new
	moved          []*entry // whose traits stay
	unmark, mark   []markRow
	closed, opened []bulkKey
}

// saveEntries writes what changed of identities, and what they are found by.
func (g *page) saveEntries(b *pgx.Batch) {
	c := &changes{}
	for _, x := range g.entries {
		c.collect(x)
	}
	if len(c.heads) > 0 {
		b.Queue(upsertHeads,
			unnest.IDs(c.heads, func(x *entry) uuid.UUID { return x.id }), unnest.IDs(c.heads, func(x *entry) uuid.UUID { return x.project }),
			unnest.Column(c.heads, func(x *entry) int64 { return int64(x.revision) }), unnest.Column(c.heads, func(x *entry) int64 { return int64(x.position) }))
	}
	if len(c.dropped) > 0 {
		b.Queue(deleteIdentities, c.dropped)
	}
	if len(c.records) > 0 {
		b.Queue(upsertIdentities,
			unnest.IDs(c.records, func(x *entry) uuid.UUID { return x.id }), unnest.IDs(c.records, func(x *entry) uuid.UUID { return x.project }),
			unnest.Column(c.records, func(x *entry) *string { return x.now.identity }),
			unnest.Column(c.records, func(x *entry) string { return x.now.traits.text }),
			unnest.Column(c.records, func(x *entry) []byte { return x.now.traits.marks }),
			unnest.Column(c.records, func(x *entry) bool { return x.now.traits.marks.broad() }),
			unnest.Column(c.records, func(x *entry) string { return x.now.origin }),
			unnest.Column(c.records, func(x *entry) time.Time { return x.now.createdAt }),
			unnest.Column(c.records, func(x *entry) time.Time { return x.now.updatedAt }))
	}
	if len(c.moved) > 0 {
		b.Queue(updateIdentities,
			unnest.IDs(c.moved, func(x *entry) uuid.UUID { return x.id }), unnest.Column(c.moved, func(x *entry) *string { return x.now.identity }),
			unnest.Column(c.moved, func(x *entry) string { return x.now.origin }),
			unnest.Column(c.moved, func(x *entry) time.Time { return x.now.createdAt }),
			unnest.Column(c.moved, func(x *entry) time.Time { return x.now.updatedAt }))
	}
	queueMarks(b, deleteMarks, c.unmark)
	queueMarks(b, insertMarks, c.mark)
	if len(c.closed) > 0 {
		b.Queue(closeBulkRows, unnest.IDs(c.closed, func(k bulkKey) uuid.UUID { return k.identity }), unnest.IDs(c.closed, func(k bulkKey) uuid.UUID { return k.bulk }))
	}
	if len(c.opened) > 0 {
		b.Queue(openBulkRows, unnest.IDs(c.opened, func(k bulkKey) uuid.UUID { return k.identity }), unnest.IDs(c.opened, func(k bulkKey) uuid.UUID { return k.bulk }),
			unnest.IDs(c.opened, func(k bulkKey) uuid.UUID { return k.project }), unnest.Column(c.opened, func(k bulkKey) int64 { return int64(k.commit) }))
	}
}

func queueMarks(b *pgx.Batch, sql string, rows []markRow) {
	if len(rows) > 0 {
		b.Queue(sql, unnest.IDs(rows, func(m markRow) uuid.UUID { return m.mark }),
			unnest.Column(rows, func(m markRow) time.Time { return m.createdAt }), unnest.IDs(rows, func(m markRow) uuid.UUID { return m.identity }))
	}
}

// collect adds what changed of an identity.
func (c *changes) collect(x *entry) {
	for bulk, commit := range x.open {
		if _, was := x.loaded[bulk]; !was {
			c.opened = append(c.opened, bulkKey{identity: x.id, bulk: bulk, project: x.project, commit: commit})
		}
	}
	for bulk := range x.loaded {
		if _, is := x.open[bulk]; !is {
			c.closed = append(c.closed, bulkKey{identity: x.id, bulk: bulk})
		}
	}
	if !x.dirty {
		return
	}
	c.heads = append(c.heads, x)
	if !x.changed {
		return
	}
	before, now := ids{}, ids{}
	if x.before != nil {
		before = x.before.traits.marks.rows()
	}
	switch {
	case x.now == nil:
		c.dropped = append(c.dropped, x.id)
	case x.now.traits.stored:
		c.moved = append(c.moved, x)
	default:
		c.records = append(c.records, x)
	}
	if x.now != nil {
		now = x.now.traits.marks.rows()
	}
	stays := x.before != nil && x.now != nil && x.before.createdAt.Equal(x.now.createdAt)
	for mark := range before {
		if !stays || !now.has(mark) {
			c.unmark = append(c.unmark, markRow{mark: mark, createdAt: x.before.createdAt, identity: x.id})
		}
	}
	for mark := range now {
		if !stays || !before.has(mark) {
			c.mark = append(c.mark, markRow{mark: mark, createdAt: x.now.createdAt, identity: x.id})
		}
	}
}
