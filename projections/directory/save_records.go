package directory

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/pgarray"
)

const (
	upsertHeads = `insert into heads (id, project_id, revision, position) select * from unnest($1::uuid[], $2::uuid[],
		$3::bigint[], $4::bigint[])
		on conflict (id) do update set revision = excluded.revision, position = excluded.position`
	deleteIdentities = `delete from identities where id = any($1::uuid[])`
	upsertIdentities = `insert into identities (id, project_id, identity, traits, marks, broad, origin, created_at,
		updated_at)
		select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::boolean[], $7::text[],
			$8::timestamptz[], $9::timestamptz[])
		on conflict (id) do update set identity = excluded.identity, traits = excluded.traits, marks = excluded.marks,
			broad = excluded.broad,
			origin = excluded.origin, created_at = excluded.created_at, updated_at = excluded.updated_at`
	// updateRecords updates records whose traits are unchanged.
	updateRecords = `update identities i set identity = n.identity, origin = n.origin, created_at = n.created_at,
		updated_at = n.updated_at
		from unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[]) as n (id, identity, origin,
			created_at, updated_at)
		where i.id = n.id`
	deleteMarks = `delete from marks m using unnest($1::uuid[], $2::timestamptz[], $3::uuid[]) as o (mark, created_at,
		identity_id)
		where m.mark = o.mark and m.created_at = o.created_at and m.identity_id = o.identity_id`
	insertMarks = `insert into marks (mark, created_at, identity_id) select * from unnest($1::uuid[],
		$2::timestamptz[], $3::uuid[])
		on conflict (mark, created_at, identity_id) do nothing`
	closeBulkRows = `delete from bulk_rows r using unnest($1::uuid[], $2::uuid[]) as c (identity_id, bulk_id)
		where r.identity_id = c.identity_id and r.bulk_id = c.bulk_id`
	openBulkRows = `insert into bulk_rows (identity_id, bulk_id, project_id, position) select *
		from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[])
		on conflict (identity_id, bulk_id) do nothing`
)

// traitKeyRow is a row of table marks.
type traitKeyRow struct {
	traitKey  uuid.UUID
	createdAt time.Time
	identity  uuid.UUID
}

// changes are the changed rows of the identities of a page.
type changes struct {
	heads                  []*identityState
	dropped                []uuid.UUID
	records                []*identityState // with new traits
	moved                  []*identityState // with unchanged traits
	removedKeys, addedKeys []traitKeyRow
	closed, opened         []bulkKey
}

// saveIdentities writes the changes of identities, and of the table by which they are found.
func (f *fold) saveIdentities(b *pgx.Batch) {
	c := &changes{}
	for _, x := range f.identities {
		c.collect(x)
	}
	if len(c.heads) > 0 {
		b.Queue(upsertHeads,
			pgarray.IDs(c.heads, func(x *identityState) uuid.UUID { return x.id }),
			pgarray.IDs(c.heads, func(x *identityState) uuid.UUID { return x.project }),
			pgarray.Column(c.heads, func(x *identityState) int64 { return int64(x.revision) }),
			pgarray.Column(c.heads, func(x *identityState) int64 { return int64(x.position) }))
	}
	if len(c.dropped) > 0 {
		b.Queue(deleteIdentities, c.dropped)
	}
	if len(c.records) > 0 {
		b.Queue(upsertIdentities,
			pgarray.IDs(c.records, func(x *identityState) uuid.UUID { return x.id }),
			pgarray.IDs(c.records, func(x *identityState) uuid.UUID { return x.project }),
			pgarray.Column(c.records, func(x *identityState) *string { return x.now.identity }),
			pgarray.Column(c.records, func(x *identityState) string { return x.now.traits.text }),
			pgarray.Column(c.records, func(x *identityState) []byte { return x.now.traits.traitKeys }),
			pgarray.Column(c.records, func(x *identityState) bool { return broad(x.now.traits.traitKeys) }),
			pgarray.Column(c.records, func(x *identityState) string { return x.now.origin }),
			pgarray.Column(c.records, func(x *identityState) time.Time { return x.now.createdAt }),
			pgarray.Column(c.records, func(x *identityState) time.Time { return x.now.updatedAt }))
	}
	if len(c.moved) > 0 {
		b.Queue(updateRecords,
			pgarray.IDs(c.moved, func(x *identityState) uuid.UUID { return x.id }),
			pgarray.Column(c.moved, func(x *identityState) *string { return x.now.identity }),
			pgarray.Column(c.moved, func(x *identityState) string { return x.now.origin }),
			pgarray.Column(c.moved, func(x *identityState) time.Time { return x.now.createdAt }),
			pgarray.Column(c.moved, func(x *identityState) time.Time { return x.now.updatedAt }))
	}
	queueTraitKeys(b, deleteMarks, c.removedKeys)
	queueTraitKeys(b, insertMarks, c.addedKeys)
	if len(c.closed) > 0 {
		b.Queue(closeBulkRows, pgarray.IDs(c.closed, func(k bulkKey) uuid.UUID { return k.identity }),
			pgarray.IDs(c.closed, func(k bulkKey) uuid.UUID { return k.bulk }))
	}
	if len(c.opened) > 0 {
		b.Queue(openBulkRows,
			pgarray.IDs(c.opened, func(k bulkKey) uuid.UUID { return k.identity }),
			pgarray.IDs(c.opened, func(k bulkKey) uuid.UUID { return k.bulk }),
			pgarray.IDs(c.opened, func(k bulkKey) uuid.UUID { return k.project }),
			pgarray.Column(c.opened, func(k bulkKey) int64 { return int64(k.commit) }))
	}
}

func queueTraitKeys(b *pgx.Batch, sql string, rows []traitKeyRow) {
	if len(rows) > 0 {
		b.Queue(sql, pgarray.IDs(rows, func(m traitKeyRow) uuid.UUID { return m.traitKey }),
			pgarray.Column(rows, func(m traitKeyRow) time.Time { return m.createdAt }),
			pgarray.IDs(rows, func(m traitKeyRow) uuid.UUID { return m.identity }))
	}
}

// collect adds the changes of an identity.
func (c *changes) collect(x *identityState) {
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
		before = markRows(x.before.traits.traitKeys)
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
		now = markRows(x.now.traits.traitKeys)
	}
	stays := x.before != nil && x.now != nil && x.before.createdAt.Equal(x.now.createdAt)
	for traitKey := range before {
		if !stays || !now.has(traitKey) {
			c.removedKeys = append(c.removedKeys, traitKeyRow{traitKey: traitKey, createdAt: x.before.createdAt, identity: x.id})
		}
	}
	for traitKey := range now {
		if !stays || !before.has(traitKey) {
			c.addedKeys = append(c.addedKeys, traitKeyRow{traitKey: traitKey, createdAt: x.now.createdAt, identity: x.id})
		}
	}
}

// maxIndexedTraits is the most traits of a record in table marks. Only a record from before the
// limit has more; queries scan its traits instead.
const maxIndexedTraits = limit.Traits

// broad reports whether the traits are too many for table marks.
func broad(traits audience.TraitKeys) bool { return traits.Len() > maxIndexedTraits }

// markRows are the hashes to store in table marks, none if there are too many.
func markRows(traits audience.TraitKeys) ids {
	rows := ids{}
	if broad(traits) {
		return rows
	}
	for n := range traits.Len() {
		rows.add(uuid.UUID(traits.Key(n)))
		rows.add(uuid.UUID(traits.Value(n)))
	}
	return rows
}
