package usage

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/pgarray"
)

// save writes the rows that the page changed, in one round trip.
func (p *fold) save(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	projects.Insert(b, p.projects)
	plans.Insert(b, p.plans)
	grants.Insert(b, p.grants)
	p.saveCharges(b)
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("write rows of a page: %w", err)
	}
	return nil
}

func (p *fold) saveCharges(b *pgx.Batch) {
	var rows []*chargeRow
	for _, row := range p.charges {
		if row.dirty {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return
	}
	charges.Save(b, rows)
	flushes.Insert(b, p.flushes)
	b.Queue(`delete from flushes f using unnest($1::uuid[], $2::text[], $3::bigint[]) as s (project_id, month, newest)
		where f.project_id = s.project_id and f.month = s.month and f.revision <= s.newest - $4::bigint`,
		pgarray.IDs(rows, func(r *chargeRow) uuid.UUID { return r.Project }),
		pgarray.Column(rows, func(r *chargeRow) string { return r.Month }),
		pgarray.Column(rows, func(r *chargeRow) int64 { return int64(r.Revision) }), int64(flushesKept))
}
