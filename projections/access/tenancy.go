package access

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections"
)

// The most organizations and projects of one list, the oldest first.
const (
	MaxOrganizations = 1000
	MaxProjects      = 50_000
)

// Tenancy finds organizations, projects and keys by the names that people use, of any organization: for operators. It
// waits until the tables show what was answered before. An organization is named by name or id, "" is any; a project
// by slug, a key by id. The faults are not-found, conflict for a name that is not enough, and service-unavailable.
type Tenancy struct {
	Queries Queries
	Head    projections.Head
}

// Organizations lists the organization with a name or id, or the oldest MaxOrganizations.
func (t Tenancy) Organizations(ctx context.Context, organization string) ([]tenants.ListedOrganization, error) {
	if err := t.Head.Await(ctx, projection.Access); err != nil {
		return nil, err
	}
	found, err := t.Queries.listOrganizations(ctx, organization)
	if err == nil && len(found) == 0 {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no organization %q", organization)
	}
	return found, err
}

// Organization finds the organization with a name or id, or the only one.
func (t Tenancy) Organization(ctx context.Context, organization string) (o tenants.ListedOrganization, err error) {
	found, err := t.Organizations(ctx, organization)
	if err == nil && len(found) > 1 {
		err = fault.New(fault.Conflict, fault.CodeConflict, "there are several organizations: name one with --org")
	}
	if err != nil {
		return o, err
	}
	return found[0], nil
}

// Projects lists the oldest MaxProjects projects, archived ones too, by organization.
func (t Tenancy) Projects(ctx context.Context, organization string) ([]tenants.ListedProject, error) {
	if _, err := t.Organizations(ctx, organization); err != nil {
		return nil, err
	}
	return t.Queries.listProjects(ctx, organization, "")
}

// Project finds the only project with a slug.
func (t Tenancy) Project(ctx context.Context, organization, slug string) (p tenants.ListedProject, err error) {
	if _, err = t.Organizations(ctx, organization); err != nil {
		return p, err
	}
	found, err := t.Queries.listProjects(ctx, organization, slug)
	if err != nil {
		return p, err
	}
	return only(found, organization, slug)
}

// Keys lists the keys of a project, revoked ones too, oldest first.
func (t Tenancy) Keys(ctx context.Context, organization, slug string) ([]tenants.Key, error) {
	p, err := t.Project(ctx, organization, slug)
	if err != nil {
		return nil, err
	}
	return t.Queries.Keys(ctx, p.ID)
}

// Key finds a key of a project, also a revoked one.
func (t Tenancy) Key(
	ctx context.Context, organization, slug, id string,
) (p tenants.ListedProject, k tenants.Key, err error) {
	if p, err = t.Project(ctx, organization, slug); err != nil {
		return p, k, err
	}
	keys, err := t.Queries.Keys(ctx, p.ID)
	if err != nil {
		return p, k, err
	}
	i := slices.IndexFunc(keys, func(k tenants.Key) bool { return k.ID == id })
	if i < 0 {
		return p, k, fault.New(fault.NotFound, fault.CodeNotFound,
			"project %s has no key %q: annals key list %s shows the ids", p.Slug, id, p.Slug)
	}
	return p, keys[i], nil
}

// OnlyProject finds the only project with a slug: of the organization with a name or an id, or of any if that is "". It
// waits for nothing. The faults are not-found and conflict.
func (q Queries) OnlyProject(ctx context.Context, organization, slug string) (Project, error) {
	found, err := q.FindProjects(ctx, organization, slug)
	if err != nil {
		return Project{}, err
	}
	return only(found, organization, slug)
}

// only returns the only one of the projects with a slug.
func only[P any](found []P, organization, slug string) (p P, err error) {
	switch {
	case len(found) == 0 && organization != "":
		err = fault.New(fault.NotFound, fault.CodeNotFound, "organization %q has no project %q", organization, slug)
	case len(found) == 0:
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no project %q", slug)
	case len(found) > 1:
		err = fault.New(fault.Conflict, fault.CodeConflict,
			"several organizations have a project %q, name one with --org", slug)
	default:
		p = found[0]
	}
	return p, err
}

// named selects the organization with the name or id $1, or all if that is "".
const named = `($1 = '' or o.name = $1 or o.id::text = lower($1))`

func (q Queries) listOrganizations(ctx context.Context, organization string) ([]tenants.ListedOrganization, error) {
	rows, err := q.DB.Query(ctx, `select o.id, o.name, o.plan, `+ownerEmail+`, o.created_at, o.spend_cap_tenths, o.prepared,
			(select count(*) from access.projects where organization_id = o.id) `+ownedOrganizations+`
		where `+named+` order by o.created_at, o.id limit $2`, organization, MaxOrganizations)
	if err != nil {
		return nil, fmt.Errorf("list organizations: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o tenants.ListedOrganization, err error) {
		var tenths *int64
		err = row.Scan(&o.ID, &o.Name, &o.Plan, &o.OwnerEmail, &o.CreatedAt, &tenths, &o.IsPrepared, &o.Projects)
		o.SpendCap = tenants.Cap(tenths)
		return o, err
	})
	if err != nil {
		return nil, fmt.Errorf("list organizations: %w", err)
	}
	return found, nil
}

// listProjects lists projects, or those with a slug if that is not "".
func (q Queries) listProjects(ctx context.Context, organization, slug string) ([]tenants.ListedProject, error) {
	rows, err := q.DB.Query(ctx, `select p.id, o.name, p.slug, p.name, p.archived, p.ingestion_cap, p.credit_cap_tenths,
			p.created_at, o.id
		from access.projects p join access.organizations o on o.id = p.organization_id
		where `+named+` and ($2 = '' or p.slug = $2) order by o.created_at, o.id, p.number limit $3`,
		organization, slug, MaxProjects)
	if err != nil {
		return nil, fmt.Errorf("list projects: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p tenants.ListedProject, err error) {
		var tenths *int64
		err = row.Scan(&p.ID, &p.Organization, &p.Slug, &p.Name, &p.IsArchived, &p.IngestionCap, &tenths, &p.CreatedAt,
			&p.OrganizationID)
		p.CreditCap = tenants.Cap(tenths)
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("list projects: %w", err)
	}
	return found, nil
}
