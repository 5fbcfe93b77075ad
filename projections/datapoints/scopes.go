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
	"github.com/annals-project/annals/internal/unnest"
)

const (
	addScopes = `insert into scopes as s (project_id, audience, live, memories)
		select * from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[])
		on conflict (project_id, audience) do update set live = s.live + excluded.live, memories = s.memories + excluded.memories`
	dropScopes = `delete from scopes s using unnest($1::uuid[], $2::uuid[]) k (project_id, audience)
		where s.project_id = k.project_id and s.audience = k.audience and s.live = 0`
)

// blobReaders is how many blobs are read at once.
const blobReaders = 4

// countDerived counts the memories that lie in blobs, of data points that live behind the page. Of a blob that is gone or damaged
// there are none: projection memories, which has their text, says so where it is logged.
func (r Projector) countDerived(ctx context.Context, points map[uuid.UUID]*point) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(blobReaders)
	for id, d := range points {
		if d.derived == nil {
			continue
		}
		group.Go(func() error {
			data, err := r.blobs.ReadBlob(ctx, *d.derived)
			var lost *eventstore.BlobError
			if errors.As(err, &lost) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("count the memories of data point %s: %w", id, err)
			}
			if memories, err := memory.Decode(data); err == nil {
				d.memories = len(memories)
			}
			return nil
		})
	}
	return group.Wait()
}

// countPoints adds what the page changed about data points to the counters of their audiences.
func (p *page) countPoints(b *pgx.Batch) {
	type change struct{ live, memories int64 }
	changes, fewer := map[scope]change{}, false
	add := func(of scoped, n int64) {
		c := changes[of.scope]
		c.live, c.memories = c.live+n, c.memories+n*int64(of.memories)
		changes[of.scope] = c
	}
	for _, of := range p.uncounted {
		add(of, -1)
	}
	for _, d := range p.points {
		if !d.dirty {
			continue
		}
		if d.counted != nil {
			add(*d.counted, -1)
		}
		add(*d.scoped(), +1)
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
	projects := unnest.IDs(rows, func(s scope) uuid.UUID { return s.project })
	audiences := unnest.IDs(rows, func(s scope) uuid.UUID { return s.audience })
	b.Queue(addScopes, projects, audiences,
		unnest.Column(rows, func(s scope) int64 { return changes[s].live }),
		unnest.Column(rows, func(s scope) int64 { return changes[s].memories }))
	if fewer {
		b.Queue(dropScopes, projects, audiences)
	}
}

// Scopes counts what recall could return of a project, by audience: live data points, and the memories of their newest captured
// revisions. What is project-visible stands under uuid.Nil. An audience that has nothing is not in the answer. A project holds a
// row for each audience that anything is scoped to, so that nothing is counted here.
func (q Queries) Scopes(ctx context.Context, project auth.Project) (map[uuid.UUID]int64, error) {
	rows, err := q.DB.Query(ctx, `select audience, live + memories from datapoints.scopes where project_id = $1`, project.ID)
	if err != nil {
		return nil, fmt.Errorf("count scopes: %w", err)
	}
	scopes := map[uuid.UUID]int64{}
	var audience [16]byte
	var n int64
	if _, err = pgx.ForEachRow(rows, []any{&audience, &n}, func() error { scopes[audience] = n; return nil }); err != nil {
		return nil, fmt.Errorf("count scopes: %w", err)
	}
	return scopes, nil
}
