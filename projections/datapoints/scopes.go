package datapoints

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pgarray"
)

const (
	// addScopes adds to counters, as the statements of save_counters.go.
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
