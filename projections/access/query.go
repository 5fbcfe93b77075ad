package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/tenants"
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
		err = q.webhookByToken(ctx, hash, &h)
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
