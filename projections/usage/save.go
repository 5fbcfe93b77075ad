package usage

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/internal/pgarray"
)

// save writes the rows that the page changed, in one round trip.
func (p *fold) save(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	if rows := p.projects; len(rows) > 0 {
		b.Queue(`insert into projects (project_id, organization_id) select * from unnest($1::uuid[], $2::uuid[]) on conflict (project_id) do nothing`,
			pgarray.IDs(rows, func(e *registry.ProjectCreated) uuid.UUID { return e.ProjectID }),
			pgarray.IDs(rows, func(e *registry.ProjectCreated) uuid.UUID { return e.OrganizationID }))
	}
	if rows := p.plans; len(rows) > 0 {
		b.Queue(`insert into plans (organization_id, revision, plan, month, charged_tenths)
			select * from unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::bigint[]) on conflict (organization_id, revision) do nothing`,
			pgarray.IDs(rows, func(r planRow) uuid.UUID { return r.OrganizationID }),
			pgarray.Column(rows, func(r planRow) int64 { return int64(r.revision) }),
			pgarray.Column(rows, func(r planRow) string { return string(r.Plan) }),
			pgarray.Column(rows, func(r planRow) string { return r.Month }),
			pgarray.Column(rows, func(r planRow) int64 { return r.ChargedTenths }))
	}
	if rows := p.grants; len(rows) > 0 {
		b.Queue(`insert into grants (organization_id, revision, kind, month, tenths)
			select * from unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::bigint[]) on conflict (organization_id, revision) do nothing`,
			pgarray.IDs(rows, func(r grantRow) uuid.UUID { return r.OrganizationID }),
			pgarray.Column(rows, func(r grantRow) int64 { return int64(r.revision) }),
			pgarray.Column(rows, func(r grantRow) string { return string(r.Kind) }),
			pgarray.Column(rows, func(r grantRow) string { return r.Month }),
			pgarray.Column(rows, func(r grantRow) int64 { return r.Tenths }))
	}
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
	projects := pgarray.IDs(rows, func(r *chargeRow) uuid.UUID { return r.project })
	months := pgarray.Column(rows, func(r *chargeRow) string { return r.month })
	revisions := pgarray.Column(rows, func(r *chargeRow) int64 { return int64(r.revision) })
	b.Queue(`insert into charges (project_id, month, organization_id, recalls, recall_tenths, webhook_events, webhook_tenths, revision)
		select * from unnest($1::uuid[], $2::text[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
		on conflict (project_id, month) do update set recalls = excluded.recalls, recall_tenths = excluded.recall_tenths,
			webhook_events = excluded.webhook_events, webhook_tenths = excluded.webhook_tenths, revision = excluded.revision`,
		projects, months,
		pgarray.IDs(rows, func(r *chargeRow) uuid.UUID { return r.organization }),
		pgarray.Column(rows, func(r *chargeRow) int64 { return r.recalls }),
		pgarray.Column(rows, func(r *chargeRow) int64 { return r.recallTenths }),
		pgarray.Column(rows, func(r *chargeRow) int64 { return r.events }),
		pgarray.Column(rows, func(r *chargeRow) int64 { return r.eventTenths }),
		revisions)
	b.Queue(`insert into flushes (flush_id, project_id, month, revision)
		select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[]) on conflict (flush_id) do nothing`,
		pgarray.IDs(p.flushes, func(r flushRow) uuid.UUID { return r.id }),
		pgarray.IDs(p.flushes, func(r flushRow) uuid.UUID { return r.project }),
		pgarray.Column(p.flushes, func(r flushRow) string { return r.month }),
		pgarray.Column(p.flushes, func(r flushRow) int64 { return int64(r.revision) }))
	b.Queue(`delete from flushes f using unnest($1::uuid[], $2::text[], $3::bigint[]) as s (project_id, month, newest)
		where f.project_id = s.project_id and f.month = s.month and f.revision <= s.newest - $4::bigint`, projects, months, revisions, int64(flushesKept))
}
