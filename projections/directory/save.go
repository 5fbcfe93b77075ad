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
)

const (
	upsertProjects = `insert into projects (project_id, namespace, created_at, rules_at)
		select * from unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::bigint[])
		on conflict (project_id) do update set rules_at = excluded.rules_at`
	upsertSeen = `insert into seen (id, project_id, at) select * from unnest($1::uuid[], $2::uuid[], $3::timestamptz[])
		on conflict (id) do update set at = excluded.at where seen.at < excluded.at`
	upsertRemovals = `insert into removals (id, project_id, revision, removed_at, position)
		select * from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::bigint[])
		on conflict (id) do update set revision = excluded.revision, removed_at = excluded.removed_at,
			position = excluded.position`
	deleteRemovals = `delete from removals r using unnest($1::uuid[], $2::bigint[]) as c (id, revision)
		where r.id = c.id and r.revision <= c.revision`
	upsertBulks = `insert into bulks (id, project_id, accepted_at, position) select * from unnest($1::uuid[],
		$2::uuid[], $3::timestamptz[], $4::bigint[])
		on conflict (id) do nothing`
	deleteBulks    = `delete from bulks where id = any($1::uuid[])`
	deleteBulkRows = `delete from bulk_rows where bulk_id = any($1::uuid[])`

	insertAbandonedBulks = `insert into lost_bulks (id, project_id, rows) select * from unnest($1::uuid[], $2::uuid[],
		$3::bigint[])
		on conflict (id) do nothing`

	deleteMembersOf = `delete from members where identity_id = any($1::uuid[])`
	// deleteMembers deletes the members of audiences but those that stay.
	deleteMembers = `delete from members m using unnest($1::uuid[]) as a (id) where m.audience_id = a.id
		and not exists (select from unnest($2::uuid[], $3::uuid[]) as k (audience_id, identity_id)
			where k.audience_id = m.audience_id and k.identity_id = m.identity_id)`
	insertMembers = `insert into members (audience_id, identity_id, since) select * from unnest($1::uuid[], $2::uuid[],
		$3::timestamptz[])
		on conflict (audience_id, identity_id) do nothing`
	deleteAudiences = `delete from audiences where id = any($1::uuid[])`
	upsertAudiences = `insert into audiences as a (id, project_id, slug, name, kind, rule, compiled, created_at,
		put_at, recomputed_at, member_count, outdated, recounting, recounted_to, recounted, position)
		select id, project_id, slug, name, kind, rule, compiled, created_at, put_at, recomputed_at, 0, rule is not null,
			rule is not null, ` + noIdentity + `, 0, position
		from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[],
			$8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::bigint[])
			as n (id, project_id, slug, name, kind, rule, compiled, created_at, put_at, recomputed_at, position)
		on conflict (id) do update set slug = excluded.slug, name = excluded.name, kind = excluded.kind,
			rule = excluded.rule, compiled = excluded.compiled,
			created_at = excluded.created_at, put_at = excluded.put_at, recomputed_at = excluded.recomputed_at,
			position = excluded.position, member_count = case when excluded.rule is null then 0 else a.member_count end,
			outdated = excluded.outdated, recounting = excluded.recounting, recounted_to = excluded.recounted_to,
			recounted = 0`
	recomputeAudiences = `update audiences a set recomputed_at = n.recomputed_at, position = n.position,
			recounting = a.rule is not null, recounted_to = ` + noIdentity + `, recounted = 0
		from unnest($1::uuid[], $2::timestamptz[], $3::bigint[]) as n (id, recomputed_at, position) where a.id = n.id`
)

// save writes the changed rows in one round trip.
func (f *fold) save(ctx context.Context) error {
	b := &pgx.Batch{}
	f.saveProjects(b)
	f.saveIdentities(b)
	f.saveSeen(b)
	f.saveRemovals(b)
	f.saveBulks(b)
	f.saveAudiences(b)
	if err := pgarray.Flush(ctx, f.tx, b); err != nil {
		return fmt.Errorf("write the rows of the page: %w", err)
	}
	return nil
}

func (f *fold) saveProjects(b *pgx.Batch) {
	var keys []uuid.UUID
	for id, p := range f.projects {
		if p.dirty {
			keys = append(keys, id)
		}
	}
	if len(keys) > 0 {
		b.Queue(upsertProjects, pgarray.IDs(keys, self),
			pgarray.IDs(keys, func(id uuid.UUID) uuid.UUID { return f.projects[id].namespace }),
			pgarray.Column(keys, func(id uuid.UUID) time.Time { return f.projects[id].createdAt }),
			pgarray.Column(keys, func(id uuid.UUID) int64 { return int64(f.projects[id].rulesAt) }))
	}
	maps.DeleteFunc(f.identityDeltas, func(_ uuid.UUID, more int64) bool { return more == 0 })
	if keys := slices.Collect(maps.Keys(f.identityDeltas)); len(keys) > 0 {
		b.Queue(addIdentityDeltas, pgarray.IDs(keys, self),
			pgarray.Column(keys, func(id uuid.UUID) int64 { return f.identityDeltas[id] }))
	}
}

func self(id uuid.UUID) uuid.UUID { return id }

func (f *fold) saveSeen(b *pgx.Batch) {
	if keys := slices.Collect(maps.Keys(f.seen)); len(keys) > 0 {
		b.Queue(upsertSeen, pgarray.IDs(keys, self),
			pgarray.IDs(keys, func(id uuid.UUID) uuid.UUID { return f.seen[id].project }),
			pgarray.Column(keys, func(id uuid.UUID) time.Time { return f.seen[id].at }))
	}
}

func (f *fold) saveRemovals(b *pgx.Batch) {
	if keys := slices.Collect(maps.Keys(f.cleared)); len(keys) > 0 {
		b.Queue(deleteRemovals, pgarray.IDs(keys, self),
			pgarray.Column(keys, func(id uuid.UUID) int64 { return int64(f.cleared[id]) }))
	}
	if keys := slices.Collect(maps.Keys(f.removals)); len(keys) > 0 {
		b.Queue(upsertRemovals, pgarray.IDs(keys, self),
			pgarray.IDs(keys, func(id uuid.UUID) uuid.UUID { return f.removals[id].project }),
			pgarray.Column(keys, func(id uuid.UUID) int64 { return int64(f.removals[id].revision) }),
			pgarray.Column(keys, func(id uuid.UUID) time.Time { return f.removals[id].removedAt }),
			pgarray.Column(keys, func(id uuid.UUID) int64 { return int64(f.removals[id].position) }))
	}
}

func (f *fold) saveBulks(b *pgx.Batch) {
	if len(f.closedBulks) > 0 {
		keys := pgarray.Keys(f.closedBulks)
		b.Queue(deleteBulks, keys)
		b.Queue(deleteBulkRows, keys)
	}
	if keys := slices.Collect(maps.Keys(f.abandoned)); len(keys) > 0 {
		b.Queue(insertAbandonedBulks, pgarray.IDs(keys, self),
			pgarray.IDs(keys, func(id uuid.UUID) uuid.UUID { return f.abandoned[id].project }),
			pgarray.Column(keys, func(id uuid.UUID) int64 { return int64(f.abandoned[id].rows) }))
	}
	if keys := slices.Collect(maps.Keys(f.bulks)); len(keys) > 0 {
		b.Queue(upsertBulks, pgarray.IDs(keys, self),
			pgarray.IDs(keys, func(id uuid.UUID) uuid.UUID { return f.bulks[id].project }),
			pgarray.Column(keys, func(id uuid.UUID) time.Time { return f.bulks[id].acceptedAt }),
			pgarray.Column(keys, func(id uuid.UUID) int64 { return int64(f.bulks[id].position) }))
	}
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
		var audiences, identities, staying, stay []uuid.UUID
		var since []time.Time
		for audience, members := range f.members {
			for id, one := range members {
				audiences, identities, since = append(audiences, audience), append(identities, id), append(since, one.since)
				if one.stays {
					staying, stay = append(staying, audience), append(stay, id)
				}
			}
		}
		b.Queue(deleteMembers, pgarray.Keys(f.members), staying, stay)
		if len(audiences) > 0 {
			b.Queue(insertMembers, audiences, identities, since)
		}
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
		b.Queue(recomputeAudiences, pgarray.IDs(recomputed, func(a *audienceRow) uuid.UUID { return a.id }),
			pgarray.Column(recomputed, func(a *audienceRow) time.Time { return a.recomputedAt }),
			pgarray.Column(recomputed, func(a *audienceRow) int64 { return int64(a.position) }))
	}
	if len(rows) > 0 {
		b.Queue(upsertAudiences,
			pgarray.IDs(rows, func(a *audienceRow) uuid.UUID { return a.id }),
			pgarray.IDs(rows, func(a *audienceRow) uuid.UUID { return a.project }),
			pgarray.Column(rows, func(a *audienceRow) string { return a.slug }),
			pgarray.Column(rows, func(a *audienceRow) string { return a.name }),
			pgarray.Column(rows, func(a *audienceRow) string { return a.kind }),
			pgarray.Column(rows, func(a *audienceRow) *string { return a.rule }),
			pgarray.Column(rows, func(a *audienceRow) []byte { return a.compiled }),
			pgarray.Column(rows, func(a *audienceRow) time.Time { return a.createdAt }),
			pgarray.Column(rows, func(a *audienceRow) time.Time { return a.putAt }),
			pgarray.Column(rows, func(a *audienceRow) time.Time { return a.recomputedAt }),
			pgarray.Column(rows, func(a *audienceRow) int64 { return int64(a.position) }))
	}
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
	identity, bulk, project uuid.UUID
	commit                  eventstore.Position
}
