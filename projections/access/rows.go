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
	"github.com/annals-project/annals/internal/unnest"
)

// load reads the rows that the events change; what they create is not read.
func load(ctx context.Context, tx pgx.Tx, facts []eventstore.Fact) (*page, error) {
	p := &page{organizations: map[uuid.UUID]*organizationRow{}, projects: map[uuid.UUID]*projectRow{}, keys: map[uuid.UUID]*keyRow{}}
	organizations, projects, keys := map[uuid.UUID]bool{}, map[uuid.UUID]bool{}, map[uuid.UUID]bool{}
	for _, f := range facts {
		switch e := f.Event.(type) {
		case *organization.ManagementKeySet:
			organizations[e.OrganizationID] = true
		case *organization.MemberAdded:
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
		case *project.CapsSet:
			projects[e.ProjectID] = true
		}
	}
	b := &pgx.Batch{}
	unnest.Queue(b, `select id, name, created_at, plan, spend_cap_tenths, owner_id, owner_email, prepared,
		management_key_id, management_key_hash, management_key_prefix, management_key_suffix
		from organizations where id = any($1::uuid[])`, organizations, func(rows pgx.Rows) error {
		for rows.Next() {
			o := &organizationRow{}
			if err := rows.Scan((*[16]byte)(&o.id), &o.name, &o.createdAt, &o.plan, &o.spendCap, &o.ownerID, &o.owner, &o.prepared,
				&o.keyID, &o.keyHash, &o.keyPrefix, &o.keySuffix); err != nil {
				return err
			}
			p.organizations[o.id] = o
		}
		return rows.Err()
	})
	unnest.Queue(b, `select id, organization_id, number, slug, name, namespace, keyed, archived, ingestion_cap, credit_cap_tenths, created_at
		from projects where id = any($1::uuid[])`, projects, func(rows pgx.Rows) error {
		for rows.Next() {
			r := &projectRow{}
			if err := rows.Scan((*[16]byte)(&r.id), (*[16]byte)(&r.organization), &r.number, &r.slug, &r.name, (*[16]byte)(&r.namespace.ID), &r.namespace.Keyed,
				&r.archived, &r.ingestionCap, &r.creditCap, &r.createdAt); err != nil {
				return err
			}
			p.projects[r.id] = r
		}
		return rows.Err()
	})
	unnest.Queue(b, `select id, project_id, name, hash, prefix, suffix, created_at, revoked_at
		from keys where id = any($1::uuid[])`, keys, func(rows pgx.Rows) error {
		for rows.Next() {
			k := &keyRow{}
			if err := rows.Scan((*[16]byte)(&k.id), (*[16]byte)(&k.project), &k.name, &k.hash, &k.prefix, &k.suffix, &k.createdAt, &k.revokedAt); err != nil {
				return err
			}
			p.keys[k.id] = k
		}
		return rows.Err()
	})
	if err := unnest.Flush(ctx, tx, b); err != nil {
		return nil, fmt.Errorf("load the rows of the page: %w", err)
	}
	return p, nil
}

// save writes the rows that the page changed, in one round trip.
func (p *page) save(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	if rows := p.opened; len(rows) > 0 {
		b.Queue(`insert into log (id, opened_at) select * from unnest($1::uuid[], $2::timestamptz[]) on conflict (id) do nothing`,
			unnest.IDs(rows, func(e *registry.LogOpened) uuid.UUID { return e.LogID }),
			unnest.Column(rows, func(e *registry.LogOpened) time.Time { return unnest.Instant(e.OpenedAt) }))
	}
	if rows := changed(p.organizations, func(o *organizationRow) bool { return o.dirty }); len(rows) > 0 {
		b.Queue(`insert into organizations (id, name, created_at, plan, spend_cap_tenths, owner_id, owner_email, prepared,
				management_key_id, management_key_hash, management_key_prefix, management_key_suffix)
			select * from unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::text[], $5::bigint[], $6::uuid[], $7::text[], $8::boolean[],
				$9::uuid[], $10::bytea[], $11::text[], $12::text[])
			on conflict (id) do update set name = excluded.name, plan = excluded.plan, spend_cap_tenths = excluded.spend_cap_tenths,
				owner_id = excluded.owner_id, owner_email = excluded.owner_email, prepared = excluded.prepared, management_key_id = excluded.management_key_id,
				management_key_hash = excluded.management_key_hash, management_key_prefix = excluded.management_key_prefix,
				management_key_suffix = excluded.management_key_suffix`,
			unnest.IDs(rows, func(o *organizationRow) uuid.UUID { return o.id }),
			unnest.Column(rows, func(o *organizationRow) string { return o.name }),
			unnest.Column(rows, func(o *organizationRow) time.Time { return o.createdAt }),
			unnest.Column(rows, func(o *organizationRow) string { return o.plan }),
			unnest.Column(rows, func(o *organizationRow) *int64 { return o.spendCap }),
			unnest.Column(rows, func(o *organizationRow) *[16]byte { return o.ownerID }),
			unnest.Column(rows, func(o *organizationRow) string { return o.owner }),
			unnest.Column(rows, func(o *organizationRow) bool { return o.prepared }),
			unnest.Column(rows, func(o *organizationRow) *[16]byte { return o.keyID }),
			unnest.Column(rows, func(o *organizationRow) []byte { return o.keyHash }),
			unnest.Column(rows, func(o *organizationRow) *string { return o.keyPrefix }),
			unnest.Column(rows, func(o *organizationRow) *string { return o.keySuffix }))
	}
	if rows := changed(p.projects, func(r *projectRow) bool { return r.dirty }); len(rows) > 0 {
		b.Queue(`insert into projects (id, organization_id, number, slug, name, namespace, keyed, archived, ingestion_cap, credit_cap_tenths, created_at)
			select * from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::uuid[], $7::boolean[], $8::boolean[], $9::bigint[],
				$10::bigint[], $11::timestamptz[])
			on conflict (id) do update set archived = excluded.archived, ingestion_cap = excluded.ingestion_cap, credit_cap_tenths = excluded.credit_cap_tenths`,
			unnest.IDs(rows, func(r *projectRow) uuid.UUID { return r.id }),
			unnest.IDs(rows, func(r *projectRow) uuid.UUID { return r.organization }),
			unnest.Column(rows, func(r *projectRow) int64 { return r.number }),
			unnest.Column(rows, func(r *projectRow) string { return r.slug }),
			unnest.Column(rows, func(r *projectRow) string { return r.name }),
			unnest.IDs(rows, func(r *projectRow) uuid.UUID { return r.namespace.ID }),
			unnest.Column(rows, func(r *projectRow) bool { return r.namespace.Keyed }),
			unnest.Column(rows, func(r *projectRow) bool { return r.archived }),
			unnest.Column(rows, func(r *projectRow) *int64 { return r.ingestionCap }),
			unnest.Column(rows, func(r *projectRow) *int64 { return r.creditCap }),
			unnest.Column(rows, func(r *projectRow) time.Time { return r.createdAt }))
	}
	if rows := changed(p.keys, func(k *keyRow) bool { return k.dirty }); len(rows) > 0 {
		b.Queue(`insert into keys (id, project_id, name, hash, prefix, suffix, created_at, revoked_at)
			select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::timestamptz[], $8::timestamptz[])
			on conflict (id) do update set revoked_at = excluded.revoked_at`,
			unnest.IDs(rows, func(k *keyRow) uuid.UUID { return k.id }),
			unnest.IDs(rows, func(k *keyRow) uuid.UUID { return k.project }),
			unnest.Column(rows, func(k *keyRow) string { return k.name }),
			unnest.Column(rows, func(k *keyRow) []byte { return k.hash }),
			unnest.Column(rows, func(k *keyRow) string { return k.prefix }),
			unnest.Column(rows, func(k *keyRow) string { return k.suffix }),
			unnest.Column(rows, func(k *keyRow) time.Time { return k.createdAt }),
			unnest.Column(rows, func(k *keyRow) *time.Time { return k.revokedAt }))
	}
	if err := unnest.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("write the rows of the page: %w", err)
	}
	return nil
}

func changed[R any](rows map[uuid.UUID]R, is func(R) bool) []R {
	var kept []R
	for _, row := range rows {
		if is(row) {
			kept = append(kept, row)
		}
	}
	return kept
}
