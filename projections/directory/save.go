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
	"github.com/annals-project/annals/internal/unnest"
)

const (
	upsertProjects = `insert into projects (project_id, namespace, keyed, created_at, rules_at)
		select * from unnest($1::uuid[], $2::uuid[], $3::boolean[], $4::timestamptz[], $5::bigint[])
		on conflict (project_id) do update set rules_at = excluded.rules_at`
	upsertSeen = `insert into seen (id, project_id, at) select * from unnest($1::uuid[], $2::uuid[], $3::timestamptz[])
		on conflict (id) do update set at = excluded.at where seen.at < excluded.at`
	upsertRemovals = `insert into removals (id, project_id, revision, removed_at, position)
		select * from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::bigint[])
		on conflict (id) do update set revision = excluded.revision, removed_at = excluded.removed_at, position = excluded.position`
	deleteRemovals = `delete from removals r using unnest($1::uuid[], $2::bigint[]) as c (id, revision) where r.id = c.id and r.revision <= c.revision`
	upsertBulks    = `insert into bulks (id, project_id, accepted_at, position) select * from unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::bigint[])
		on conflict (id) do nothing`
	deleteBulks    = `delete from bulks where id = any($1::uuid[])`
	deleteBulkRows = `delete from bulk_rows where bulk_id = any($1::uuid[])`

	insertLostBulks = `insert into lost_bulks (id, project_id, rows) select * from unnest($1::uuid[], $2::uuid[], $3::bigint[])
		on conflict (id) do nothing`

	deleteMembersOf = `delete from members where identity_id = any($1::uuid[])`
	deleteMembers   = `delete from members m using unnest($1::uuid[]) as a (id) where m.audience_id = a.id
		and not exists (select from unnest($2::uuid[], $3::uuid[]) as k (audience_id, identity_id)
			where k.audience_id = m.audience_id and k.identity_id = m.identity_id)`
	insertMembers = `insert into members (audience_id, identity_id) select * from unnest($1::uuid[], $2::uuid[])
		on conflict (audience_id, identity_id) do nothing`
	deleteAudiences = `delete from audiences where id = any($1::uuid[])`
	upsertAudiences = `insert into audiences as a (id, project_id, slug, name, kind, rule, compiled, created_at, recomputed_at, member_count, position)
		select id, project_id, slug, name, kind, rule, compiled, created_at, recomputed_at, 0, position
		from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::timestamptz[], $9::timestamptz[], $10::bigint[])
			as n (id, project_id, slug, name, kind, rule, compiled, created_at, recomputed_at, position)
		on conflict (id) do update set slug = excluded.slug, name = excluded.name, kind = excluded.kind, rule = excluded.rule, compiled = excluded.compiled,
			created_at = excluded.created_at, recomputed_at = excluded.recomputed_at, position = excluded.position,
			member_count = case when excluded.rule is null then 0 else a.member_count end`
	recomputeAudiences = `update audiences a set recomputed_at = n.recomputed_at, position = n.position
		from unnest($1::uuid[], $2::timestamptz[], $3::bigint[]) as n (id, recomputed_at, position) where a.id = n.id`
)

// save writes the rows that the page changed, in one round trip.
func (g *page) save(ctx context.Context) error {
	b := &pgx.Batch{}
	g.saveProjects(b)
	g.saveEntries(b)
	g.saveSeen(b)
	g.saveRemovals(b)
	g.saveBulks(b)
	g.saveAudiences(b)
	if err := unnest.Flush(ctx, g.tx, b); err != nil {
		return fmt.Errorf("write the rows of the page: %w", err)
	}
	return nil
}

func (g *page) saveProjects(b *pgx.Batch) {
	var keys []uuid.UUID
	for id, p := range g.projects {
		if p.dirty {
			keys = append(keys, id)
		}
	}
	if len(keys) > 0 {
		b.Queue(upsertProjects, unnest.IDs(keys, same),
			unnest.IDs(keys, func(id uuid.UUID) uuid.UUID { return g.projects[id].namespace.ID }),
			unnest.Column(keys, func(id uuid.UUID) bool { return g.projects[id].namespace.Keyed }),
			unnest.Column(keys, func(id uuid.UUID) time.Time { return g.projects[id].createdAt }),
			unnest.Column(keys, func(id uuid.UUID) int64 { return int64(g.projects[id].rulesAt) }))
	}
	maps.DeleteFunc(g.people, func(_ uuid.UUID, more int64) bool { return more == 0 })
	if keys := slices.Collect(maps.Keys(g.people)); len(keys) > 0 {
		b.Queue(addPeople, unnest.IDs(keys, same), unnest.Column(keys, func(id uuid.UUID) int64 { return g.people[id] }))
	}
}

func same(id uuid.UUID) uuid.UUID { return id }

func (g *page) saveSeen(b *pgx.Batch) {
	if keys := slices.Collect(maps.Keys(g.seen)); len(keys) > 0 {
		b.Queue(upsertSeen, unnest.IDs(keys, same),
			unnest.IDs(keys, func(id uuid.UUID) uuid.UUID { return g.seen[id].project }),
			unnest.Column(keys, func(id uuid.UUID) time.Time { return g.seen[id].at }))
	}
}

func (g *page) saveRemovals(b *pgx.Batch) {
	if keys := slices.Collect(maps.Keys(g.cleared)); len(keys) > 0 {
		b.Queue(deleteRemovals, unnest.IDs(keys, same), unnest.Column(keys, func(id uuid.UUID) int64 { return int64(g.cleared[id]) }))
	}
	if keys := slices.Collect(maps.Keys(g.removals)); len(keys) > 0 {
		b.Queue(upsertRemovals, unnest.IDs(keys, same),
			unnest.IDs(keys, func(id uuid.UUID) uuid.UUID { return g.removals[id].project }),
			unnest.Column(keys, func(id uuid.UUID) int64 { return int64(g.removals[id].revision) }),
			unnest.Column(keys, func(id uuid.UUID) time.Time { return g.removals[id].removedAt }),
			unnest.Column(keys, func(id uuid.UUID) int64 { return int64(g.removals[id].position) }))
	}
}

func (g *page) saveBulks(b *pgx.Batch) {
	if len(g.ended) > 0 {
		keys := unnest.Keys(g.ended)
		b.Queue(deleteBulks, keys)
		b.Queue(deleteBulkRows, keys)
	}
	if keys := slices.Collect(maps.Keys(g.lost)); len(keys) > 0 {
		b.Queue(insertLostBulks, unnest.IDs(keys, same),
			unnest.IDs(keys, func(id uuid.UUID) uuid.UUID { return g.lost[id].project }),
			unnest.Column(keys, func(id uuid.UUID) int64 { return int64(g.lost[id].rows) }))
	}
	if keys := slices.Collect(maps.Keys(g.bulks)); len(keys) > 0 {
		b.Queue(upsertBulks, unnest.IDs(keys, same),
			unnest.IDs(keys, func(id uuid.UUID) uuid.UUID { return g.bulks[id].project }),
			unnest.Column(keys, func(id uuid.UUID) time.Time { return g.bulks[id].acceptedAt }),
			unnest.Column(keys, func(id uuid.UUID) int64 { return int64(g.bulks[id].position) }))
	}
}

// saveAudiences writes audiences with their members. Whoever was removed within the page leaves every audience first: those of the
// page that have them all the same had them put behind the removal.
func (g *page) saveAudiences(b *pgx.Batch) {
	if len(g.gone) > 0 {
		b.Queue(deleteMembersOf, unnest.Keys(g.gone))
	}
	if len(g.removed) > 0 {
		b.Queue(deleteAudiences, unnest.Keys(g.removed))
	}
	if len(g.members) > 0 {
		var audiences, identities [][16]byte
		for audience, members := range g.members {
			for id := range members {
				audiences, identities = append(audiences, audience), append(identities, id)
			}
		}
		b.Queue(deleteMembers, unnest.Keys(g.members), audiences, identities)
		if len(audiences) > 0 {
			b.Queue(insertMembers, audiences, identities)
		}
	}
	var rows, recomputed []*audienceRow
	for _, a := range g.audiences {
		switch {
		case a.put:
			rows = append(rows, a)
		case a.dirty:
			recomputed = append(recomputed, a)
		}
	}
	if len(recomputed) > 0 {
		b.Queue(recomputeAudiences, unnest.IDs(recomputed, func(a *audienceRow) uuid.UUID { return a.id }),
			unnest.Column(recomputed, func(a *audienceRow) time.Time { return a.recomputedAt }),
			unnest.Column(recomputed, func(a *audienceRow) int64 { return int64(a.position) }))
	}
	if len(rows) > 0 {
		b.Queue(upsertAudiences,
			unnest.IDs(rows, func(a *audienceRow) uuid.UUID { return a.id }),
			unnest.IDs(rows, func(a *audienceRow) uuid.UUID { return a.project }),
			unnest.Column(rows, func(a *audienceRow) string { return a.slug }),
			unnest.Column(rows, func(a *audienceRow) string { return a.name }),
			unnest.Column(rows, func(a *audienceRow) string { return a.kind }),
			unnest.Column(rows, func(a *audienceRow) *string { return a.rule }),
			unnest.Column(rows, func(a *audienceRow) []byte { return a.compiled }),
			unnest.Column(rows, func(a *audienceRow) time.Time { return a.createdAt }),
			unnest.Column(rows, func(a *audienceRow) time.Time { return a.recomputedAt }),
			unnest.Column(rows, func(a *audienceRow) int64 { return int64(a.position) }))
	}
	if keys := slices.Collect(maps.Keys(g.deltas)); len(keys) > 0 {
		b.Queue(addCounts, unnest.IDs(keys, same), unnest.Column(keys, func(id uuid.UUID) int64 { return g.deltas[id] }))
	}
}

// bulkKey names a row of table bulk_rows.
type bulkKey struct {
	identity, bulk, project uuid.UUID
	commit                  eventstore.Position
}
