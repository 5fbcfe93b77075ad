package datapoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/table"
)

const (
	deleteSendsWithoutItems = `delete from sends_without_items where id = any($1::uuid[])`

	// insertBatches makes an array of the items of each batch.
	insertBatches = `insert into batches (id, data_points, bytes)
		select id, array_agg(data_point order by ordinal), array_agg(bytes order by ordinal)
		from unnest($1::uuid[], $2::int[], $3::uuid[], $4::bigint[]) as b (id, ordinal, data_point, bytes) group by id
		on conflict (id) do nothing`
	deleteBatches  = `delete from batches where id = any($1::uuid[])`
	deleteErasures = `delete from erasures where deletion_id = any($1::uuid[])`
)

// save writes the changed rows in one round trip.
func (f *fold) save(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	f.saveSends(b)
	moved := f.assignLanes()
	items.Save(b, table.Filter(f.items, func(i *item) bool { return i.dirty }))
	saveMovedHeads(b, moved)
	f.countBulk(b)
	f.saveBatches(b)
	f.saveBlobs(b)
	f.saveDamage(b)
	f.saveDataPoints(b)
	f.saveDeletions(b)
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("write the rows of the page: %w", err)
	}
	return nil
}

func (f *fold) saveSends(b *pgx.Batch) {
	var withItems []*send
	var without []*sendWithoutItems
	var found []uuid.UUID
	for _, s := range f.sends {
		if !s.dirty {
			continue
		}
		if !s.known {
			without = append(without, &s.sendWithoutItems)
			continue
		}
		if s.stored == inSendsWithoutItems {
			found = append(found, s.ID)
		}
		if s.Phase != failed {
			s.Code, s.Message = nil, nil
		}
		withItems = append(withItems, s)
	}
	sends.Save(b, withItems)
	sendsWithoutItems.Save(b, without)
	if len(found) > 0 {
		b.Queue(deleteSendsWithoutItems, found)
	}
	f.countSends(b)
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

func (f *fold) saveDeletions(b *pgx.Batch) {
	deletions.Save(b, table.Filter(f.deletions, func(d *deletionRow) bool { return d.dirty }))
	erasures.Save(b, table.Filter(f.erasures, func(e *erasure) bool { return e.dirty }))
	if len(f.cleaned) > 0 {
		b.Queue(deleteErasures, pgarray.Keys(f.cleaned))
	}
}

const (
	deleteDataPoints = `delete from data_points where id = any($1::uuid[])`
	// deleteRevisions deletes the few revisions of each data point. The rest of one with more has a follow-up.
	deleteRevisions = `delete from revisions r using unnest($1::uuid[]) k (id) cross join lateral (
			select data_point, number from revisions where data_point = k.id order by number limit $2
		) d where r.data_point = d.data_point and r.number = d.number`
)

func (f *fold) saveDataPoints(b *pgx.Batch) {
	f.countDataPoints(b)
	if len(f.removed)+len(f.unlisted) > 0 {
		b.Queue(deleteDataPoints, slices.Concat(pgarray.Keys(f.removed), pgarray.Keys(f.unlisted)))
	}
	if len(f.removed) > 0 {
		b.Queue(deleteRevisions, pgarray.Keys(f.removed), f.most)
	}
	projections.QueueFollowUps(b, Name, slices.Collect(maps.Values(f.followUps)))
	dataPoints.Save(b, table.Filter(f.dataPoints, func(d *dataPointRow) bool { return d.dirty }))
	revisions.Insert(b, f.revisions)
	f.saveMovedAudiences(b)
}

// saveMovedAudiences writes the moves of the page. It runs after its new revisions are inserted.
func (f *fold) saveMovedAudiences(b *pgx.Batch) {
	var moved []*revisionAudience
	for key, audience := range f.movedAudiences {
		moved = append(moved, &revisionAudience{key, audience})
	}
	revisionAudiences.Update(b, moved)
}

// Counters are added to, so that a page need not load them.
const (
	addReadiness = `insert into readiness as r (project_id, raw, comprehension, failed)
		select * from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[])
		on conflict (project_id) do update set raw = r.raw + excluded.raw,
			comprehension = r.comprehension + excluded.comprehension,
			failed = r.failed + excluded.failed`
	addUsage = `insert into month_usage as u (project_id, month, ingestions, credit_tenths)
		select * from unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[])
		on conflict (project_id, month) do update set ingestions = u.ingestions + excluded.ingestions,
			credit_tenths = u.credit_tenths + excluded.credit_tenths`
)

// projectMonth is the key of a row of table month_usage.
type projectMonth struct {
	project uuid.UUID
	month   string
}

// countSends adds the changes of sends to the counters of their projects. A project gets a row from
// its first send on, also for zero.
func (f *fold) countSends(b *pgx.Batch) {
	ready, used := map[uuid.UUID]readiness{}, map[projectMonth]charges{}
	for _, s := range f.sends {
		if !s.dirty {
			continue
		}
		createsRevision := s.known && s.stored != inSends
		if now := s.readiness(); createsRevision || now != s.before {
			change := ready[s.Project]
			change.add(now, +1)
			change.add(s.before, -1)
			ready[s.Project] = change
		}
		if createsRevision || s.charges != s.charged {
			key := projectMonth{s.Project, s.Month}
			change := used[key]
			change.Ingestions += s.Ingestions - s.charged.Ingestions
			change.CreditTenths += s.CreditTenths - s.charged.CreditTenths
			used[key] = change
		}
	}
	if len(ready) > 0 {
		projects := pgarray.Keys(ready)
		b.Queue(addReadiness, projects,
			pgarray.Column(projects, func(id uuid.UUID) int64 { return ready[id].raw }),
			pgarray.Column(projects, func(id uuid.UUID) int64 { return ready[id].comprehension }),
			pgarray.Column(projects, func(id uuid.UUID) int64 { return ready[id].failed }))
	}
	if len(used) > 0 {
		months := make([]projectMonth, 0, len(used))
		for key := range used {
			months = append(months, key)
		}
		b.Queue(addUsage,
			pgarray.IDs(months, func(m projectMonth) uuid.UUID { return m.project }),
			pgarray.Column(months, func(m projectMonth) string { return m.month }),
			pgarray.Column(months, func(m projectMonth) int64 { return used[m].Ingestions }),
			pgarray.Column(months, func(m projectMonth) int64 { return used[m].CreditTenths }))
	}
}

const (
	// addScopes adds to counters, as the other statements here.
	addScopes = `insert into scopes as s (project_id, audience, live, memories)
		select * from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[])
		on conflict (project_id, audience) do update set live = s.live + excluded.live,
			memories = s.memories + excluded.memories`
	dropScopes = `delete from scopes s using unnest($1::uuid[], $2::uuid[]) k (project_id, audience)
		where s.project_id = k.project_id and s.audience = k.audience and s.live = 0`
)

// blobReaders is how many blobs are read concurrently.
const blobReaders = 4

// countMemories counts the memories in the blobs of the page's data points. A missing or damaged
// blob counts as none; projection memories logs it.
func (p Projector) countMemories(ctx context.Context, dataPoints map[uuid.UUID]*dataPointRow) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(blobReaders)
	for id, d := range dataPoints {
		if d.derived == nil {
			continue
		}
		group.Go(func() error {
			data, err := p.blobs.ReadBlob(ctx, *d.derived)
			if _, lost := errors.AsType[*eventstore.BlobError](err); lost {
				return nil
			}
			if err != nil {
				return fmt.Errorf("count the memories of data point %s: %w", id, err)
			}
			if memories, err := memory.Decode(data); err == nil {
				d.Memories = len(memories)
			}
			return nil
		})
	}
	return group.Wait()
}

// countDataPoints adds the changes of data points to the counters of their audiences.
func (f *fold) countDataPoints(b *pgx.Batch) {
	type change struct{ live, memories int64 }
	changes, fewer := map[scope]change{}, false
	add := func(of scopeShare, n int64) {
		c := changes[of.scope]
		c.live, c.memories = c.live+n, c.memories+n*int64(of.memories)
		changes[of.scope] = c
	}
	for _, of := range f.uncounted {
		add(of, -1)
	}
	for _, d := range f.dataPoints {
		if !d.dirty {
			continue
		}
		if d.counted != nil {
			add(*d.counted, -1)
		}
		add(*d.share(), +1)
	}
	rows := make([]scope, 0, len(changes))
	for of, c := range changes {
		if c != (change{}) {
			rows, fewer = append(rows, of), fewer || c.live < 0
		}
	}
	if len(rows) == 0 {
		return
	}
	projects := pgarray.IDs(rows, func(s scope) uuid.UUID { return s.project })
	audiences := pgarray.IDs(rows, func(s scope) uuid.UUID { return s.audience })
	b.Queue(addScopes, projects, audiences, pgarray.Column(rows, func(s scope) int64 { return changes[s].live }),
		pgarray.Column(rows, func(s scope) int64 { return changes[s].memories }))
	if fewer {
		b.Queue(dropScopes, projects, audiences)
	}
}

// Scopes returns, by audience, what recall could return of a project: live data points and the
// memories of their newest captured revisions. uuid.Nil counts what is project-visible. Audiences
// without any are absent. It reads stored counters, one row per audience.
func (q Queries) Scopes(ctx context.Context, project auth.Project) (map[uuid.UUID]int64, error) {
	rows, err := q.DB.Query(ctx, `select audience, live + memories from datapoints.scopes
		where project_id = $1`, project.ID)
	if err != nil {
		return nil, fmt.Errorf("count scopes: %w", err)
	}
	scopes := map[uuid.UUID]int64{}
	var audience uuid.UUID
	var n int64
	if _, err = pgx.ForEachRow(rows, []any{&audience, &n}, func() error { scopes[audience] = n; return nil }); err != nil {
		return nil, fmt.Errorf("count scopes: %w", err)
	}
	return scopes, nil
}
