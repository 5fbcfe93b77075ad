package directory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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
