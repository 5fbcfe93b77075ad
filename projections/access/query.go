package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections"
)

// Queries reads the tables of this projection.
type Queries struct {
	DB *pgxpool.Pool
	// Namespaces derive the namespaces of projects. Without the hash key, a project whose namespace
	// needs it is an error.
	Namespaces stream.Namespaces
}

// Project is a project of an organization.
type Project struct {
	auth.Project
	OrganizationID uuid.UUID
	Name           string
	Description    string
	Archived       bool
	// ReadDays is how many days the records of reads are kept.
	ReadDays int
	// IngestionCap (data points a month) and CreditCapTenths (tenths of a credit a month) are nil
	// without a cap.
	IngestionCap    *int64
	CreditCapTenths *int64
	CreatedAt       time.Time
}

// KeyByHash implements auth.Keys by the SHA-256 of the clear value of a key or of a webhook's token. ok is
// false for one that is unknown or revoked, or of another kind.
func (q Queries) KeyByHash(ctx context.Context, kind auth.Kind, hash [32]byte) (h auth.Holder, ok bool, err error) {
	h.Kind = kind
	l := &h.Limits
	switch kind {
	case auth.ProjectKey:
		found, err := q.ProjectKeys(ctx, [][32]byte{hash})
		if err != nil {
			return auth.Holder{}, false, err
		}
		key, ok := found[hash]
		return key.Holder, ok && key.Err == nil, key.Err
	case auth.ManagementKey:
		err = q.DB.QueryRow(ctx, `select management_key_id, coalesce(management_key_prefix, ''), id, not prepared, plan, spend_cap_tenths
			from access.organizations where management_key_hash = $1`, hash[:]).
			Scan(&h.KeyID, &h.KeyPrefix, &h.OrganizationID, &h.Preparing, &l.Plan, &l.SpendCapTenths)
	case auth.WebhookToken:
		_, err = q.holderOf(ctx, &h, `w.token_hash = $1`, hash[:])
	default:
		return auth.Holder{}, false, nil
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return auth.Holder{}, false, nil
	}
	if err != nil {
		return auth.Holder{}, false, fmt.Errorf("find key: %w", err)
	}
	return h, true, nil
}

// ProjectKey is the holder of a key of a project, or why the namespace of the project is unknown.
type ProjectKey struct {
	Holder auth.Holder
	Err    error
}

// ProjectKeys returns the holders of the live keys of projects by hash, as KeyByHash does.
func (q Queries) ProjectKeys(ctx context.Context, hashes [][32]byte) (map[[32]byte]ProjectKey, error) {
	list := make([][]byte, len(hashes))
	for i := range hashes {
		list[i] = hashes[i][:]
	}
	rows, err := q.DB.Query(ctx, `select k.hash, k.id, k.name, k.prefix, o.id, not o.prepared, o.plan, o.spend_cap_tenths,
			p.id, p.number, p.slug, p.namespace, p.archived, p.reads, p.ingestion_cap, p.credit_cap_tenths
		from access.keys k join access.projects p on p.id = k.project_id join access.organizations o on o.id = p.organization_id
		where k.hash = any($1) and k.revoked_at is null`, list)
	if err != nil {
		return nil, fmt.Errorf("find key: %w", err)
	}
	defer rows.Close()
	found := make(map[[32]byte]ProjectKey, len(hashes))
	for rows.Next() {
		var hash []byte
		var stored uuid.UUID
		h := auth.Holder{Principal: auth.Principal{Kind: auth.ProjectKey}}
		p, l := &h.Project, &h.Limits
		err := rows.Scan(&hash, &h.KeyID, &h.KeyName, &h.KeyPrefix, &h.OrganizationID, &h.Preparing, &l.Plan,
			&l.SpendCapTenths, &p.ID, &p.Number, &p.Slug, &stored, &h.Archived, &p.Reads, &l.IngestionCap, &l.CreditCapTenths)
		if err != nil {
			return nil, fmt.Errorf("find key: %w", err)
		}
		key := ProjectKey{Holder: h}
		if key.Holder.Project.Namespace, key.Err = q.Namespaces.Of(stored); key.Err != nil {
			key = ProjectKey{Err: fmt.Errorf("find key: %w", key.Err)}
		}
		found[[32]byte(hash)] = key
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("find key: %w", err)
	}
	return found, nil
}

// ProjectNamed implements auth.Keys.
func (q Queries) ProjectNamed(ctx context.Context, organizationID uuid.UUID, slug string) (auth.Named, bool, error) {
	p, ok, err := q.ProjectBySlug(ctx, organizationID, slug)
	return auth.Named{
		Project:         p.Project,
		IngestionCap:    p.IngestionCap,
		CreditCapTenths: p.CreditCapTenths,
		Archived:        p.Archived,
	}, ok, err
}

const selectProjects = `select id, number, slug, namespace, organization_id, name, description, archived, reads, read_days, ingestion_cap, credit_cap_tenths, created_at from access.projects `

func (q Queries) scanProject(row pgx.CollectableRow) (p Project, err error) {
	var stored uuid.UUID
	if err = row.Scan(
		&p.ID, &p.Number, &p.Slug, &stored, &p.OrganizationID, &p.Name, &p.Description, &p.Archived, &p.Reads, &p.ReadDays,
		&p.IngestionCap, &p.CreditCapTenths, &p.CreatedAt,
	); err != nil {
		return p, err
	}
	p.Namespace, err = q.Namespaces.Of(stored)
	return p, err
}

// Projects lists the projects of an organization, archived ones too, oldest first.
func (q Queries) Projects(ctx context.Context, organizationID uuid.UUID) ([]Project, error) {
	return q.ProjectsIn(ctx, q.DB, organizationID)
}

// ProjectsIn is Projects in a snapshot.
func (q Queries) ProjectsIn(ctx context.Context, db replica.Snapshot, organizationID uuid.UUID) ([]Project, error) {
	rows, err := db.Query(ctx, selectProjects+`where organization_id = $1 order by number`, organizationID)
	if err != nil {
		return nil, fmt.Errorf("list projects: %w", err)
	}
	projects, err := pgx.CollectRows(rows, q.scanProject)
	if err != nil {
		return nil, fmt.Errorf("list projects: %w", err)
	}
	return projects, nil
}

// ProjectBySlug finds a project of an organization, also an archived one.
func (q Queries) ProjectBySlug(
	ctx context.Context, organizationID uuid.UUID, slug string,
) (p Project, ok bool, err error) {
	return q.findProject(ctx, `where organization_id = $1 and slug = $2`, organizationID, slug)
}

// ProjectByID finds a project of any organization, for the operator.
func (q Queries) ProjectByID(ctx context.Context, id uuid.UUID) (p Project, ok bool, err error) {
	return q.findProject(ctx, `where id = $1`, id)
}

// SlugOf returns the slug of a project of any organization, "" if there is none.
func (q Queries) SlugOf(ctx context.Context, project uuid.UUID) (string, error) {
	p, _, err := q.ProjectByID(ctx, project)
	return p.Slug, err
}

func (q Queries) findProject(ctx context.Context, where string, args ...any) (p Project, ok bool, err error) {
	rows, err := q.DB.Query(ctx, selectProjects+where, args...)
	if err != nil {
		return Project{}, false, fmt.Errorf("find project: %w", err)
	}
	p, err = pgx.CollectExactlyOneRow(rows, q.scanProject)
	if errors.Is(err, pgx.ErrNoRows) {
		return Project{}, false, nil
	}
	if err != nil {
		return Project{}, false, fmt.Errorf("find project: %w", err)
	}
	return p, true, nil
}

// FindProjects finds projects by slug, archived ones too: that of an organization with a name or an id, or those of all
// organizations if that is "".
func (q Queries) FindProjects(ctx context.Context, organization, slug string) ([]Project, error) {
	rows, err := q.DB.Query(ctx, selectProjects+`where slug = $2 and organization_id in (
		select id from access.organizations where $1 = '' or name = $1 or id::text = lower($1)) order by number limit 10`,
		organization, slug)
	if err != nil {
		return nil, fmt.Errorf("find projects: %w", err)
	}
	projects, err := pgx.CollectRows(rows, q.scanProject)
	if err != nil {
		return nil, fmt.Errorf("find projects: %w", err)
	}
	return projects, nil
}

// Keys lists the keys of a project, revoked ones too, oldest first.
func (q Queries) Keys(ctx context.Context, projectID uuid.UUID) ([]tenants.Key, error) {
	rows, err := q.DB.Query(ctx, `select k.id::text, p.slug, k.name, k.prefix, k.suffix, k.created_at, k.revoked_at
		from access.keys k join access.projects p on p.id = k.project_id
		where k.project_id = $1 order by k.created_at, k.id`, projectID)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[tenants.Key])
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return keys, nil
}

// LogID is the id of the log that the tables are built from; ok is false before the log is opened.
func (q Queries) LogID(ctx context.Context) (id uuid.UUID, ok bool, err error) {
	err = q.DB.QueryRow(ctx, `select id from access.log order by opened_at, id limit 1`).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return uuid.Nil, false, nil
	}
	if err != nil {
		return uuid.Nil, false, fmt.Errorf("read the log's id: %w", err)
	}
	return id, true, nil
}

// Owners maps projects to their organizations. It leaves out unknown projects.
func (q Queries) Owners(ctx context.Context, projects []uuid.UUID) (map[uuid.UUID]uuid.UUID, error) {
	rows, err := q.DB.Query(ctx, `select id, organization_id from access.projects where id = any($1::uuid[])`, projects)
	if err != nil {
		return nil, fmt.Errorf("find owners of projects: %w", err)
	}
	owners := make(map[uuid.UUID]uuid.UUID, len(projects))
	var project, organization uuid.UUID
	if _, err = pgx.ForEachRow(rows, []any{&project, &organization}, func() error {
		owners[project] = organization
		return nil
	}); err != nil {
		return nil, fmt.Errorf("find owners of projects: %w", err)
	}
	return owners, nil
}

// Organization is an organization as its events left it.
type Organization struct {
	ID   uuid.UUID
	Name string
	Plan metering.Plan
	// SpendCapTenths bounds a month's charges in tenths of a credit; nil is no bound.
	SpendCapTenths *int64
	// OwnerID and OwnerEmail are of the newest owner. OwnerEmail is person.RemovedName if that one, or
	// the last of all, was erased, and "" if there never was an owner.
	OwnerID    *uuid.UUID
	OwnerEmail string
	// Prepared organizations are served.
	Prepared bool
	// ManagementKeyID is nil if no management key was ever set.
	ManagementKeyID *uuid.UUID
	CreatedAt       time.Time
	// VisitDays is for how many days visits are kept.
	VisitDays int
}

const selectOrganizations = `select o.id, o.name, o.plan, o.spend_cap_tenths, m.person_id, ` + ownerEmail + `,
		o.prepared, o.management_key_id, o.created_at, o.visit_days ` + ownedOrganizations

// ownedOrganizations are organizations o with the member m that is their newest owner, and that person p.
const (
	ownedOrganizations = ` from access.organizations o
	left join lateral (select person_id from access.members where organization_id = o.id and role = 'owner'
		order by position desc limit 1) m on true
	left join access.people p on p.id = m.person_id `
	ownerEmail = `case when o.owned then coalesce(p.email, '` + person.RemovedName + `') else '' end`
)

// OrganizationByID finds one organization.
func (q Queries) OrganizationByID(ctx context.Context, id uuid.UUID) (o Organization, ok bool, err error) {
	rows, err := q.DB.Query(ctx, selectOrganizations+`where o.id = $1`, id)
	if err != nil {
		return Organization{}, false, fmt.Errorf("find organization: %w", err)
	}
	o, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Organization])
	if errors.Is(err, pgx.ErrNoRows) {
		return Organization{}, false, nil
	}
	if err != nil {
		return Organization{}, false, fmt.Errorf("find organization: %w", err)
	}
	return o, true, nil
}

// Names returns addresses of people, names of keys and slugs of projects, by their ids. Who is removed is not in it.
func (q Queries) Names(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error) {
	rows, err := q.DB.Query(ctx, `select id, email from access.people where id = any($1) and email is not null
		union all select id, name from access.keys where id = any($1)
		union all select id, slug from access.projects where id = any($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("find names: %w", err)
	}
	names := make(map[uuid.UUID]string, len(ids))
	var id uuid.UUID
	var name string
	if _, err = pgx.ForEachRow(rows, []any{&id, &name}, func() error {
		names[id] = name
		return nil
	}); err != nil {
		return nil, fmt.Errorf("find names: %w", err)
	}
	return names, nil
}

// LiveKeys returns those of the project keys that are created and not revoked in the projection, and of the
// tokens of webhooks that are in use.
func (q Queries) LiveKeys(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]struct{}, error) {
	rows, err := q.DB.Query(ctx, `select id from access.keys where id = any($1) and revoked_at is null
		union all select token_id from access.webhooks where token_id = any($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("find live keys: %w", err)
	}
	live, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("find live keys: %w", err)
	}
	set := make(map[uuid.UUID]struct{}, len(live))
	for _, id := range live {
		set[id] = struct{}{}
	}
	return set, nil
}

// Preparing returns the organizations that are not prepared in the projection.
func (q Queries) Preparing(ctx context.Context) ([]uuid.UUID, error) {
	rows, err := q.DB.Query(ctx, `select id from access.organizations where not prepared order by created_at, id`)
	if err != nil {
		return nil, fmt.Errorf("list organizations that are preparing: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("list organizations that are preparing: %w", err)
	}
	return ids, nil
}

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
