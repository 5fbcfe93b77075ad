package datapoints

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/pg/replica"
)

// Counts are the counters of a project.
type Counts struct {
	// Live counts the live data points, Memories the memories of their newest captured revisions.
	Live, Memories int64
	// Ingested counts the items of the month that created a revision, also of data points deleted
	// since, and CreditTenths their price in tenths of a credit. A batch that is not fanned out
	// counts as priced at its commit.
	Ingested, CreditTenths int64
}

// Counts reads the counters of projects, for a month as in "2026-11". A project without any is
// absent.
func (Queries) Counts(
	ctx context.Context, db replica.Snapshot, projects []uuid.UUID, month string,
) (map[uuid.UUID]Counts, error) {
	rows, err := db.Query(ctx, `
		select p.id,
			coalesce(s.live, 0), coalesce(s.memories, 0), coalesce(u.ingestions, 0), coalesce(u.credit_tenths, 0)
		from unnest($1::uuid[]) as p (id) left join datapoints.month_usage u on u.project_id = p.id and u.month = $2
			left join lateral (select sum(live)::bigint as live, sum(memories)::bigint as memories from datapoints.scopes s
				where s.project_id = p.id) s on true`, projects, month)
	if err != nil {
		return nil, fmt.Errorf("count projects: %w", err)
	}
	counts := make(map[uuid.UUID]Counts, len(projects))
	var id uuid.UUID
	var c Counts
	_, err = pgx.ForEachRow(rows, []any{&id, &c.Live, &c.Memories, &c.Ingested, &c.CreditTenths}, func() error {
		counts[id] = c
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count projects: %w", err)
	}
	return counts, nil
}

// ProjectOf returns the project of a send of any project.
func (q Queries) ProjectOf(ctx context.Context, ingestionID uuid.UUID) (project uuid.UUID, found bool, err error) {
	err = q.DB.QueryRow(ctx, `select project_id from datapoints.sends where id = $1`, ingestionID).Scan(&project)
	if errors.Is(err, pgx.ErrNoRows) {
		return uuid.Nil, false, nil
	}
	if err != nil {
		return uuid.Nil, false, fmt.Errorf("find the project of a send: %w", err)
	}
	return project, true, nil
}

// CountAll counts the live data points of all projects, up to the checkpoint of the projection.
func (q Queries) CountAll(ctx context.Context) (n int64, err error) {
	err = q.DB.QueryRow(ctx, `select coalesce(sum(live), 0)::bigint from datapoints.scopes`).Scan(&n)
	return n, err
}
