package access

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
)

// load reads the rows that the events change; what they create is not read.
func load(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) (*fold, error) {
	p := &fold{
		organizations: map[uuid.UUID]*organizationRow{},
		projects:      map[uuid.UUID]*projectRow{},
		keys:          map[uuid.UUID]*keyRow{},
		webhooks:      map[string]*webhookRow{},
		people:        newPeople(),
	}
	organizations, projects, keys := rowsOf(events)
	b := &pgx.Batch{}
	pgarray.Queue(b, `select id, name, created_at, plan, spend_cap_tenths, owned, prepared, second_factor, position,
		management_key_id, management_key_hash, management_key_prefix, management_key_suffix
		from organizations where id = any($1::uuid[])`, organizations, func(rows pgx.Rows) error {
		for rows.Next() {
			o := &organizationRow{}
			if err := rows.Scan(&o.id, &o.name, &o.createdAt, &o.plan, &o.spendCap, &o.owned, &o.prepared,
				&o.factor, &o.position, &o.keyID, &o.keyHash, &o.keyPrefix, &o.keySuffix); err != nil {
				return err
			}
			p.organizations[o.id] = o
		}
		return rows.Err()
	})
	pgarray.Queue(
		b,
		`select id, organization_id, number, slug, name, description, namespace, archived, ingestion_cap, credit_cap_tenths,
			created_at
		from projects where id = any($1::uuid[])`,
		projects,
		func(rows pgx.Rows) error {
			for rows.Next() {
				r := &projectRow{}
				if err := rows.Scan(&r.id, &r.organization, &r.number, &r.slug, &r.name, &r.description, &r.namespace,
					&r.archived, &r.ingestionCap, &r.creditCap, &r.createdAt); err != nil {
					return err
				}
				p.projects[r.id] = r
			}
			return rows.Err()
		},
	)
	pgarray.Queue(b, `select id, project_id, name, hash, prefix, suffix, created_at, revoked_at
		from keys where id = any($1::uuid[])`, keys, func(rows pgx.Rows) error {
		for rows.Next() {
			k := &keyRow{}
			err := rows.Scan(&k.id, &k.project, &k.name, &k.hash, &k.prefix, &k.suffix, &k.createdAt, &k.revokedAt)
			if err != nil {
				return err
			}
			p.keys[k.id] = k
		}
		return rows.Err()
	})
	p.queueWebhooks(b, events)
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return nil, fmt.Errorf("load rows of a page: %w", err)
	}
	return p, nil
}

// rowsOf returns the rows that the events change.
func rowsOf(events []eventstore.DecodedEvent) (organizations, projects, keys map[uuid.UUID]bool) {
	organizations, projects, keys = map[uuid.UUID]bool{}, map[uuid.UUID]bool{}, map[uuid.UUID]bool{}
	for _, f := range events {
		switch e := f.Event.(type) {
		case *organization.ManagementKeySet:
			organizations[e.OrganizationID] = true
		case *organization.MemberAdded:
			organizations[e.OrganizationID] = true
		case *organization.MemberRoleSet:
			organizations[e.OrganizationID] = true
		case *organization.SecondFactorSet:
			organizations[e.OrganizationID] = true
		case *organization.PlanSet:
			organizations[e.OrganizationID] = true
		case *organization.SpendCapSet:
			organizations[e.OrganizationID] = true
		case *organization.Prepared:
			organizations[e.OrganizationID] = true
		case *project.KeyRevoked:
			keys[e.KeyID] = true
		case *project.Archived:
			projects[e.ProjectID] = true
		case *project.Unarchived:
			projects[e.ProjectID] = true
		case *project.Described:
			projects[e.ProjectID] = true
		case *project.CapsSet:
			projects[e.ProjectID] = true
		}
	}
	return organizations, projects, keys
}

// save writes the rows that the page changed, in one round trip.
func (p *fold) save(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	if rows := p.opened; len(rows) > 0 {
		b.Queue(
			`insert into log (id, opened_at) select * from unnest($1::uuid[], $2::timestamptz[]) on conflict (id) do nothing`,
			pgarray.IDs(rows, func(e *registry.LogOpened) uuid.UUID { return e.LogID }),
			pgarray.Column(rows, func(e *registry.LogOpened) time.Time { return pgarray.Instant(e.OpenedAt) }),
		)
	}
	if rows := changed(p.organizations, func(o *organizationRow) bool { return o.dirty }); len(rows) > 0 {
		b.Queue(`insert into organizations (id, name, created_at, plan, spend_cap_tenths, owned, prepared, second_factor,
				position, management_key_id, management_key_hash, management_key_prefix, management_key_suffix)
			select * from unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::text[], $5::bigint[], $6::boolean[], $7::boolean[],
				$8::boolean[], $9::bigint[], $10::uuid[], $11::bytea[], $12::text[], $13::text[])
			on conflict (id) do update set name = excluded.name, plan = excluded.plan, spend_cap_tenths = excluded.spend_cap_tenths,
				owned = excluded.owned, prepared = excluded.prepared, second_factor = excluded.second_factor, management_key_id = excluded.management_key_id,
				management_key_hash = excluded.management_key_hash, management_key_prefix = excluded.management_key_prefix,
				management_key_suffix = excluded.management_key_suffix`,
			pgarray.IDs(rows, func(o *organizationRow) uuid.UUID { return o.id }),
			pgarray.Column(rows, func(o *organizationRow) string { return o.name }),
			pgarray.Column(rows, func(o *organizationRow) time.Time { return o.createdAt }),
			pgarray.Column(rows, func(o *organizationRow) string { return o.plan }),
			pgarray.Column(rows, func(o *organizationRow) *int64 { return o.spendCap }),
			pgarray.Column(rows, func(o *organizationRow) bool { return o.owned }),
			pgarray.Column(rows, func(o *organizationRow) bool { return o.prepared }),
			pgarray.Column(rows, func(o *organizationRow) bool { return o.factor }),
			pgarray.Column(rows, func(o *organizationRow) int64 { return o.position }),
			pgarray.Column(rows, func(o *organizationRow) *uuid.UUID { return o.keyID }),
			pgarray.Column(rows, func(o *organizationRow) []byte { return o.keyHash }),
			pgarray.Column(rows, func(o *organizationRow) *string { return o.keyPrefix }),
			pgarray.Column(rows, func(o *organizationRow) *string { return o.keySuffix }))
	}
	if rows := changed(p.projects, func(r *projectRow) bool { return r.dirty }); len(rows) > 0 {
		b.Queue(
			`insert into projects (id, organization_id, number, slug, name, namespace, archived, ingestion_cap, credit_cap_tenths,
				created_at, description)
			select * from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::uuid[], $7::boolean[], $8::bigint[], $9::bigint[],
				$10::timestamptz[], $11::text[])
			on conflict (id) do update set archived = excluded.archived, ingestion_cap = excluded.ingestion_cap,
				credit_cap_tenths = excluded.credit_cap_tenths, name = excluded.name, description = excluded.description`,
			pgarray.IDs(rows, func(r *projectRow) uuid.UUID { return r.id }),
			pgarray.IDs(rows, func(r *projectRow) uuid.UUID { return r.organization }),
			pgarray.Column(rows, func(r *projectRow) int64 { return r.number }),
			pgarray.Column(rows, func(r *projectRow) string { return r.slug }),
			pgarray.Column(rows, func(r *projectRow) string { return r.name }),
			pgarray.IDs(rows, func(r *projectRow) uuid.UUID { return r.namespace }),
			pgarray.Column(rows, func(r *projectRow) bool { return r.archived }),
			pgarray.Column(rows, func(r *projectRow) *int64 { return r.ingestionCap }),
			pgarray.Column(rows, func(r *projectRow) *int64 { return r.creditCap }),
			pgarray.Column(rows, func(r *projectRow) time.Time { return r.createdAt }),
			pgarray.Column(rows, func(r *projectRow) string { return r.description }),
		)
	}
	if rows := changed(p.keys, func(k *keyRow) bool { return k.dirty }); len(rows) > 0 {
		b.Queue(`insert into keys (id, project_id, name, hash, prefix, suffix, created_at, revoked_at)
			select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::timestamptz[], $8::timestamptz[])
			on conflict (id) do update set revoked_at = excluded.revoked_at`,
			pgarray.IDs(rows, func(k *keyRow) uuid.UUID { return k.id }),
			pgarray.IDs(rows, func(k *keyRow) uuid.UUID { return k.project }),
			pgarray.Column(rows, func(k *keyRow) string { return k.name }),
			pgarray.Column(rows, func(k *keyRow) []byte { return k.hash }),
			pgarray.Column(rows, func(k *keyRow) string { return k.prefix }),
			pgarray.Column(rows, func(k *keyRow) string { return k.suffix }),
			pgarray.Column(rows, func(k *keyRow) time.Time { return k.createdAt }),
			pgarray.Column(rows, func(k *keyRow) *time.Time { return k.revokedAt }))
	}
	p.saveWebhooks(b)
	p.savePeople(b)
	p.offers.save(b)
	p.agents.save(b)
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("write rows of a page: %w", err)
	}
	return nil
}

func changed[R any](rows map[uuid.UUID]R, is func(R) bool) []R {
	var matching []R
	for _, row := range rows {
		if is(row) {
			matching = append(matching, row)
		}
	}
	return matching
}
