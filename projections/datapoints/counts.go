package datapoints

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Counts are what a project holds and took.
type Counts struct {
	// Live is the number of live data points, Memories that of the memories of their newest captured revisions.
	Live, Memories int64
	// Ingested is how many data points brought a revision in the month that was asked for, also those deleted since, and CreditTenths
	// what they cost in tenths of a credit. A batch that is not fanned out counts with what its commit priced.
	Ingested, CreditTenths int64
}

// Counts counts the projects of a list in one month ("2026-11"). A project that has nothing is not in the answer.
func (q Queries) Counts(ctx context.Context, projects []uuid.UUID, month string) (map[uuid.UUID]Counts, error) {
	rows, err := q.DB.Query(ctx, `
		select p.id,
			coalesce(s.live, 0), coalesce(s.memories, 0), coalesce(u.ingestions, 0), coalesce(u.credit_tenths, 0)
		from unnest($1::uuid[]) as p (id) left join datapoints.month_usage u on u.project_id = p.id and u.month = $2
			left join lateral (select sum(live)::bigint as live, sum(memories)::bigint as memories from datapoints.scopes s where s.project_id = p.id) s on true`, idsOf(projects), month)
	if err != nil {
		return nil, fmt.Errorf("count projects: %w", err)
	}
	counts := make(map[uuid.UUID]Counts, len(projects))
	var id [16]byte
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

// ProjectOf is the project of a send: for the operator, who sees all.
func (q Queries) ProjectOf(ctx context.Context, ingestionID uuid.UUID) (project uuid.UUID, found bool, err error) {
	err = q.DB.QueryRow(ctx, `select project_id from datapoints.sends where id = $1`, ingestionID).Scan((*[16]byte)(&project))
	if errors.Is(err, pgx.ErrNoRows) {
		return uuid.Nil, false, nil
	}
	if err != nil {
		return uuid.Nil, false, fmt.Errorf("find the project of a send: %w", err)
	}
	return project, true, nil
}
