package operatorapi

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections/access"
)

// The operations that read organizations, and those on projects and their keys.
var (
	ListOrganizations = tenancyOperation[[]OrganizationView]("organizations/list")
	ShowOrganization  = tenancyOperation[OrganizationView]("organizations/show")
	ListProjects      = tenancyOperation[[]ProjectView]("projects/list")
	CreateProject     = tenancyOperation[ProjectView]("projects/create")
	ShowProject       = tenancyOperation[ProjectView]("projects/show")
	ListKeys          = tenancyOperation[[]KeyView]("keys/list")
	CreateKey         = tenancyOperation[KeyView]("keys/create")
	RevealKey         = tenancyOperation[KeyView]("keys/reveal")
	RevokeKey         = tenancyOperation[KeyView]("keys/revoke")
)

func tenancyOperation[Out any](path string) Operation[TenancyRequest, Out] {
	return Operation[TenancyRequest, Out]{http.MethodPost, "/operator/" + path}
}

// TenancyRequest names an organization, and where the operation needs them a project by its slug and a key by its id.
type TenancyRequest struct {
	Target
	Project string `json:"project,omitempty"`
	Key     string `json:"key,omitempty"`
	// Name is that of what is created.
	Name string `json:"name,omitempty"`
}

// OrganizationView is an organization for an operator.
type OrganizationView struct {
	Organization
	// IsPrepared is false while its calls are refused, since its creation is not complete.
	IsPrepared bool `json:"isPrepared"`
	// Projects counts its projects, archived ones too.
	Projects int `json:"projects"`
}

// ProjectView is a project for an operator.
type ProjectView struct {
	Project
	CreatedAt time.Time `json:"createdAt"`
}

// KeyView is a project key for an operator. Its clear value begins with Prefix and ends with Suffix.
type KeyView struct {
	ID        string     `json:"id"`
	Project   string     `json:"project"`
	Name      string     `json:"name"`
	Prefix    string     `json:"keyPrefix"`
	Suffix    string     `json:"keySuffix"`
	CreatedAt time.Time  `json:"createdAt"`
	RevokedAt *time.Time `json:"revokedAt"`
	// Key is the clear value, only of a key that is created or revealed.
	Key string `json:"key,omitempty"`
	// Warning is a problem that remains although the operation succeeded.
	Warning string `json:"warning,omitempty"`
}

// Tenancy performs the operations.
type Tenancy struct {
	Commands *commands.Service
	Access   access.Queries
	Log      interface {
		Head(ctx context.Context) (eventstore.Position, error)
	}
	Waiter interface {
		Wait(ctx context.Context, position eventstore.Position, projections ...string) error
	}
	Now func() time.Time
}

// Routes returns the routes of the operations.
func (t Tenancy) Routes() []Route {
	return []Route{
		ListOrganizations.Serve(t.organizations), ShowOrganization.Serve(t.organization),
		ListProjects.Serve(t.projects), CreateProject.Serve(t.createProject), ShowProject.Serve(t.showProject),
		ListKeys.Serve(t.keys), CreateKey.Serve(t.createKey), RevealKey.Serve(t.revealKey), RevokeKey.Serve(t.revokeKey),
	}
}

// find waits until the tables show the head of the log, and finds the organizations that a request means.
func (t Tenancy) find(ctx context.Context, in TenancyRequest) ([]access.Organization, error) {
	ctx, cancel := context.WithTimeout(ctx, exportWait)
	defer cancel()
	head, err := t.Log.Head(ctx)
	if err == nil {
		err = t.Waiter.Wait(ctx, head, projection.Access)
	}
	if err != nil {
		return nil, err
	}
	found, err := t.Access.FindOrganizations(ctx, in.Organization)
	if err == nil && len(found) == 0 {
		return nil, Refuse("there is no organization %q", in.Organization)
	}
	return found, err
}

// only finds the organization that a request names, or the only one.
func (t Tenancy) only(ctx context.Context, in TenancyRequest) (access.Organization, error) {
	found, err := t.find(ctx, in)
	if err == nil && len(found) != 1 {
		err = Refuse("there are several organizations: name one with --org")
	}
	if err != nil {
		return access.Organization{}, err
	}
	return found[0], nil
}

// project finds the project that a request names, with its organization.
func (t Tenancy) project(ctx context.Context, in TenancyRequest) (p access.Project, o access.Organization, err error) {
	found, err := t.find(ctx, in)
	if err != nil {
		return p, o, err
	}
	if p, err = findProject(ctx, t.Access, in.Organization, in.Project); err != nil {
		return p, o, err
	}
	for _, o := range found {
		if o.ID == p.OrganizationID {
			return p, o, nil
		}
	}
	o, _, err = t.Access.OrganizationByID(ctx, p.OrganizationID)
	return p, o, err
}

func (t Tenancy) call(in TenancyRequest, organization uuid.UUID) commands.Call {
	call := callBy(in.By, t.Now())
	call.Principal.OrganizationID = organization
	return call
}

func (t Tenancy) organizations(ctx context.Context, in TenancyRequest) ([]OrganizationView, error) {
	found, err := t.find(ctx, in)
	if err != nil {
		return nil, err
	}
	list := make([]OrganizationView, len(found))
	for i, o := range found {
		if list[i], err = t.viewOf(ctx, o); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (t Tenancy) organization(ctx context.Context, in TenancyRequest) (out OrganizationView, err error) {
	o, err := t.only(ctx, in)
	if err != nil {
		return out, err
	}
	return t.viewOf(ctx, o)
}

func (t Tenancy) viewOf(ctx context.Context, o access.Organization) (OrganizationView, error) {
	projects, err := t.Access.Projects(ctx, o.ID)
	return OrganizationView{
		Organization: Organization{
			ID: o.ID.String(), Name: o.Name, Plan: string(o.Plan), OwnerEmail: o.OwnerEmail, CreatedAt: &o.CreatedAt,
			SpendCap: credits(o.SpendCapTenths),
		},
		IsPrepared: o.Prepared, Projects: len(projects),
	}, err
}

func (t Tenancy) projects(ctx context.Context, in TenancyRequest) ([]ProjectView, error) {
	found, err := t.find(ctx, in)
	if err != nil {
		return nil, err
	}
	list := []ProjectView{}
	for _, o := range found {
		projects, err := t.Access.Projects(ctx, o.ID)
		if err != nil {
			return nil, err
		}
		for _, p := range projects {
			list = append(list, projectView(p, o))
		}
	}
	return list, nil
}

func projectView(p access.Project, o access.Organization) ProjectView {
	return ProjectView{Project{
		ID: p.ID.String(), Organization: o.Name, Slug: p.Slug, Name: p.Name, IsArchived: p.Archived,
		IngestionCap: p.IngestionCap, CreditCap: credits(p.CreditCapTenths),
	}, p.CreatedAt}
}

func (t Tenancy) createProject(ctx context.Context, in TenancyRequest) (out ProjectView, err error) {
	o, err := t.only(ctx, in)
	if err != nil {
		return out, err
	}
	made, err := t.Commands.CreateProject(ctx, t.call(in, o.ID), in.Name)
	if err != nil && !isLate(err) {
		return out, refusedFor(err)
	}
	return ProjectView{
		Project{ID: made.ID.String(), Organization: o.Name, Slug: made.Slug, Name: made.Name}, made.CreatedAt,
	}, nil
}

func (t Tenancy) showProject(ctx context.Context, in TenancyRequest) (out ProjectView, err error) {
	p, o, err := t.project(ctx, in)
	if err != nil {
		return out, err
	}
	return projectView(p, o), nil
}

func (t Tenancy) keys(ctx context.Context, in TenancyRequest) ([]KeyView, error) {
	p, _, err := t.project(ctx, in)
	if err != nil {
		return nil, err
	}
	found, err := t.Access.Keys(ctx, p.Project)
	list := make([]KeyView, len(found))
	for i, k := range found {
		list[i] = KeyView{
			ID: k.ID.String(), Project: p.Slug, Name: k.Name, Prefix: k.Prefix, Suffix: k.Suffix, CreatedAt: k.CreatedAt,
			RevokedAt: k.RevokedAt,
		}
	}
	return list, err
}

// key finds the key that a request names.
func (t Tenancy) key(ctx context.Context, in TenancyRequest) (k KeyView, organization uuid.UUID, err error) {
	p, o, err := t.project(ctx, in)
	if err != nil {
		return k, organization, err
	}
	list, err := t.keys(ctx, in)
	if err != nil {
		return k, organization, err
	}
	for _, k := range list {
		if k.ID == in.Key {
			return k, o.ID, nil
		}
	}
	return k, organization, Refuse("project %s has no key %q: annals key list %s shows the ids", p.Slug, in.Key, p.Slug)
}

func (t Tenancy) createKey(ctx context.Context, in TenancyRequest) (out KeyView, err error) {
	p, o, err := t.project(ctx, in)
	if err != nil {
		return out, err
	}
	if fields.CheckName(in.Name, 1, limit.KeyName) != nil {
		return out, Refuse("a key needs a name of 1 to %d characters", limit.KeyName)
	}
	made, err := t.Commands.CreateKey(ctx, t.call(in, o.ID), p.Slug, in.Name)
	if isLate(err) {
		out.Warning, err = "the service lags: the key is taken shortly", nil
	}
	if err != nil {
		return out, refusedFor(err)
	}
	return KeyView{
		ID: made.ID, Project: p.Slug, Name: made.Name, Prefix: made.KeyPrefix, Suffix: made.KeySuffix,
		CreatedAt: made.CreatedAt, Key: made.Key, Warning: out.Warning,
	}, nil
}

func (t Tenancy) revealKey(ctx context.Context, in TenancyRequest) (out KeyView, err error) {
	out, organization, err := t.key(ctx, in)
	if err != nil {
		return out, err
	}
	out.Key, err = t.Commands.RevealKey(ctx, t.call(in, organization), in.Project, out.ID)
	return out, refusedFor(err)
}

func (t Tenancy) revokeKey(ctx context.Context, in TenancyRequest) (out KeyView, err error) {
	out, organization, err := t.key(ctx, in)
	if err != nil {
		return out, err
	}
	call := t.call(in, organization)
	err = t.Commands.RevokeKey(ctx, call, in.Project, out.ID)
	if isLate(err) {
		out.Warning, err = "the service lags: the key is refused shortly", nil
	}
	out.RevokedAt = &call.ReceivedAt
	return out, refusedFor(err)
}
