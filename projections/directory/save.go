package directory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/table"
)

const (
	deleteRemovals = `delete from removals r using unnest($1::uuid[], $2::bigint[]) as c (id, revision)
		where r.id = c.id and r.revision <= c.revision`
	deleteBulks    = `delete from bulks where id = any($1::uuid[])`
	deleteBulkRows = `delete from bulk_rows where bulk_id = any($1::uuid[])`

	deleteMembersOf = `delete from members where identity_id = any($1::uuid[])`
	// deleteMembers deletes the members of audiences but those that stay.
	deleteMembers = `delete from members m using unnest($1::uuid[]) as a (id) where m.audience_id = a.id
		and not exists (select from unnest($2::uuid[], $3::uuid[]) as k (audience_id, identity_id)
			where k.audience_id = m.audience_id and k.identity_id = m.identity_id)`
	deleteAudiences = `delete from audiences where id = any($1::uuid[])`
	// recomputeAudiences begins a recount of those with a rule.
	recomputeAudiences = `update audiences a set recomputed_at = n.recomputed_at, position = n.position,
			recounting = a.rule is not null, recounted_to = ` + noIdentity + `, recounted = 0
		from unnest($1::uuid[], $2::timestamptz[], $3::bigint[]) as n (id, recomputed_at, position) where a.id = n.id`
)

// save writes the changed rows in one round trip.
func (f *fold) save(ctx context.Context) error {
	b := &pgx.Batch{}
	f.saveProjects(b)
	f.saveIdentities(b)
	seen.Save(b, slices.Collect(maps.Values(f.seen)))
	f.saveRemovals(b)
	f.saveBulks(b)
	f.saveAudiences(b)
	f.savePast(b)
	if err := pgarray.Flush(ctx, f.tx, b); err != nil {
		return fmt.Errorf("write the rows of the page: %w", err)
	}
	return nil
}

func (f *fold) saveProjects(b *pgx.Batch) {
	projects.Save(b, table.Filter(f.projects, func(p *projectRow) bool { return p.dirty }))
	maps.DeleteFunc(f.identityDeltas, func(_ uuid.UUID, more int64) bool { return more == 0 })
	if keys := slices.Collect(maps.Keys(f.identityDeltas)); len(keys) > 0 {
		b.Queue(addIdentityDeltas, pgarray.IDs(keys, self),
			pgarray.Column(keys, func(id uuid.UUID) int64 { return f.identityDeltas[id] }))
	}
}

func self(id uuid.UUID) uuid.UUID { return id }

func (f *fold) saveRemovals(b *pgx.Batch) {
	if keys := slices.Collect(maps.Keys(f.cleared)); len(keys) > 0 {
		b.Queue(deleteRemovals, pgarray.IDs(keys, self),
			pgarray.Column(keys, func(id uuid.UUID) int64 { return int64(f.cleared[id]) }))
	}
	removals.Save(b, slices.Collect(maps.Values(f.removals)))
}

func (f *fold) saveBulks(b *pgx.Batch) {
	if len(f.closedBulks) > 0 {
		keys := pgarray.Keys(f.closedBulks)
		b.Queue(deleteBulks, keys)
		b.Queue(deleteBulkRows, keys)
	}
	abandonedBulks.Insert(b, slices.Collect(maps.Values(f.abandoned)))
	bulks.Insert(b, slices.Collect(maps.Values(f.bulks)))
}

// saveAudiences writes audiences with their members. It first removes the records removed within
// the page from all audiences: an audience of the page that has such a member was put after the
// removal.
func (f *fold) saveAudiences(b *pgx.Batch) {
	if len(f.removedRecords) > 0 {
		b.Queue(deleteMembersOf, pgarray.Keys(f.removedRecords))
	}
	if len(f.removed) > 0 {
		b.Queue(deleteAudiences, pgarray.Keys(f.removed))
	}
	if len(f.members) > 0 {
		var list []*memberRow
		var staying, stay []uuid.UUID
		for audience, members := range f.members {
			for id, one := range members {
				list = append(list, &memberRow{audience, id, one.since})
				if one.stays {
					staying, stay = append(staying, audience), append(stay, id)
				}
			}
		}
		b.Queue(deleteMembers, pgarray.Keys(f.members), staying, stay)
		memberTable.Insert(b, list)
	}
	var rows, recomputed []*audienceRow
	for _, a := range f.audiences {
		switch {
		case a.put:
			rows = append(rows, a)
		case a.dirty:
			recomputed = append(recomputed, a)
		}
	}
	if len(recomputed) > 0 {
		b.Queue(recomputeAudiences, pgarray.IDs(recomputed, func(a *audienceRow) uuid.UUID { return a.ID }),
			pgarray.Column(recomputed, func(a *audienceRow) time.Time { return a.RecomputedAt }),
			pgarray.Column(recomputed, func(a *audienceRow) int64 { return int64(a.Position) }))
	}
	audiences.Save(b, rows)
	if keys := slices.Collect(maps.Keys(f.memberDeltas)); len(keys) > 0 {
		b.Queue(addMemberDeltas, pgarray.IDs(keys, self),
			pgarray.Column(keys, func(id uuid.UUID) int64 { return f.memberDeltas[id] }))
	}
	if keys := slices.Collect(maps.Keys(f.recountDeltas)); len(keys) > 0 {
		b.Queue(addRecountDeltas, pgarray.IDs(keys, self),
			pgarray.Column(keys, func(id uuid.UUID) int64 { return f.recountDeltas[id] }))
	}
	projections.QueueFollowUps(b, Name, f.followUps())
}

// bulkKey is a row of table bulk_rows.
type bulkKey struct {
	Identity uuid.UUID           `db:"identity_id"`
	Bulk     uuid.UUID           `db:"bulk_id"`
	Project  uuid.UUID           `db:"project_id"`
	Position eventstore.Position `db:"position"` // of the commit
}

var bulkRows = table.New[bulkKey](Name, schema, "bulk_rows")

const (
	deleteIdentities = `delete from identities where id = any($1::uuid[])`
	deleteMarks      = `delete from marks m using unnest($1::uuid[], $2::timestamptz[], $3::uuid[]) as o (mark, created_at,
		identity_id)
		where m.mark = o.mark and m.created_at = o.created_at and m.identity_id = o.identity_id`
	closeBulkRows = `delete from bulk_rows r using unnest($1::uuid[], $2::uuid[]) as c (identity_id, bulk_id)
		where r.identity_id = c.identity_id and r.bulk_id = c.bulk_id`
)

// movedIdentity is the part of a row of table identities that changes while the traits stay.
type movedIdentity struct {
	ID        uuid.UUID `db:"id"`
	Identity  *string   `db:"identity"`
	Origin    string    `db:"origin"`
	CreatedAt time.Time `db:"created_at"`
	UpdatedAt time.Time `db:"updated_at"`
	Private   uuid.UUID `db:"private"`
	// Born is the position of what created the record.
	Born eventstore.Position `db:"born"`
}

// storedIdentity is the part that a page loads: of the traits only their hashes.
type storedIdentity struct {
	movedIdentity
	Project   uuid.UUID `db:"project_id,once"`
	TraitKeys []byte    `db:"marks"`
}

// identityRow is a row of table identities.
type identityRow struct {
	storedIdentity
	Traits string `db:"traits"`
	Broad  bool   `db:"broad"`
}

// traitKeyRow is a row of table marks.
type traitKeyRow struct {
	TraitKey  uuid.UUID `db:"mark"`
	CreatedAt time.Time `db:"created_at"`
	Identity  uuid.UUID `db:"identity_id"`
}

var (
	movedIdentities  = table.NewPart[movedIdentity](Name, schema, "identities")
	storedIdentities = table.NewPart[storedIdentity](Name, schema, "identities")
	identities       = table.New[identityRow](Name, schema, "identities")
	marks            = table.New[traitKeyRow](Name, schema, "marks")
)

// changes are the changed rows of the identities of a page.
type changes struct {
	heads                  []*headRow
	dropped                []uuid.UUID
	records                []*identityRow   // with new traits
	moved                  []*movedIdentity // with unchanged traits
	removedKeys, addedKeys []*traitKeyRow
	closed, opened         []*bulkKey
}

// saveIdentities writes the changes of identities, and of the table by which they are found.
func (f *fold) saveIdentities(b *pgx.Batch) {
	c := &changes{}
	for _, x := range f.identities {
		c.collect(x)
	}
	heads.Save(b, c.heads)
	if len(c.dropped) > 0 {
		b.Queue(deleteIdentities, c.dropped)
	}
	identities.Save(b, c.records)
	movedIdentities.Update(b, c.moved)
	if rows := c.removedKeys; len(rows) > 0 {
		b.Queue(deleteMarks, pgarray.IDs(rows, func(m *traitKeyRow) uuid.UUID { return m.TraitKey }),
			pgarray.Column(rows, func(m *traitKeyRow) time.Time { return m.CreatedAt }),
			pgarray.IDs(rows, func(m *traitKeyRow) uuid.UUID { return m.Identity }))
	}
	marks.Insert(b, c.addedKeys)
	if len(c.closed) > 0 {
		b.Queue(closeBulkRows, pgarray.IDs(c.closed, func(k *bulkKey) uuid.UUID { return k.Identity }),
			pgarray.IDs(c.closed, func(k *bulkKey) uuid.UUID { return k.Bulk }))
	}
	bulkRows.Insert(b, c.opened)
}

// collect adds the changes of an identity.
func (c *changes) collect(x *identityState) {
	for bulk, commit := range x.open {
		if _, was := x.loaded[bulk]; !was {
			c.opened = append(c.opened, &bulkKey{Identity: x.ID, Bulk: bulk, Project: x.Project, Position: commit})
		}
	}
	for bulk := range x.loaded {
		if _, is := x.open[bulk]; !is {
			c.closed = append(c.closed, &bulkKey{Identity: x.ID, Bulk: bulk})
		}
	}
	if !x.dirty {
		return
	}
	c.heads = append(c.heads, &x.headRow)
	if !x.changed {
		return
	}
	before, now := ids{}, ids{}
	if x.before != nil {
		before = markRows(x.before.traits.traitKeys)
	}
	switch {
	case x.now == nil:
		c.dropped = append(c.dropped, x.ID)
	case x.now.traits.stored:
		c.moved = append(c.moved, &x.row().movedIdentity)
	default:
		c.records = append(c.records, x.row())
	}
	if x.now != nil {
		now = markRows(x.now.traits.traitKeys)
	}
	stays := x.before != nil && x.now != nil && x.before.createdAt.Equal(x.now.createdAt)
	for traitKey := range before {
		if !stays || !now.has(traitKey) {
			c.removedKeys = append(c.removedKeys, &traitKeyRow{traitKey, x.before.createdAt, x.ID})
		}
	}
	for traitKey := range now {
		if !stays || !before.has(traitKey) {
			c.addedKeys = append(c.addedKeys, &traitKeyRow{traitKey, x.now.createdAt, x.ID})
		}
	}
}

// row is the row of the record. Of traits that are stored it has the hashes alone.
func (x *identityState) row() *identityRow {
	r := x.now
	return &identityRow{
		storedIdentity: storedIdentity{
			movedIdentity: movedIdentity{
				ID: x.ID, Identity: r.identity, Origin: r.origin, CreatedAt: r.createdAt, UpdatedAt: r.updatedAt,
				Private: stream.PrivateAudienceID(x.ID, r.createdAt), Born: r.born,
			},
			Project: x.Project, TraitKeys: r.traits.traitKeys,
		},
		Traits: r.traits.text, Broad: broad(r.traits.traitKeys),
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
