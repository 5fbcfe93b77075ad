package operatorapi

import (
	"context"
	"net/http"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
)

// The operations that read organizations, and those on projects and their keys.
var (
	ListOrganizations = tenancyOperation[[]tenants.ListedOrganization]("organizations/list")
	ShowOrganization  = tenancyOperation[tenants.ListedOrganization]("organizations/show")
	ListProjects      = tenancyOperation[[]tenants.ListedProject]("projects/list")
	CreateProject     = tenancyOperation[tenants.ListedProject]("projects/create")
	ShowProject       = tenancyOperation[tenants.ListedProject]("projects/show")
	ListKeys          = tenancyOperation[[]tenants.Key]("keys/list")
	CreateKey         = tenancyOperation[tenants.Key]("keys/create")
	RevealKey         = tenancyOperation[tenants.Key]("keys/reveal")
	RevokeKey         = tenancyOperation[tenants.Key]("keys/revoke")
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

// TenancyRoutes returns the routes of the operations.
func TenancyRoutes(s *commands.Service, of access.Tenancy, now func() time.Time) []Route {
	do := commands.Tenancy{Service: s, Tenants: of}
	return []Route{
		ListOrganizations.Serve(func(ctx context.Context, in TenancyRequest) ([]tenants.ListedOrganization, error) {
			return of.Organizations(ctx, in.Organization)
		}),
		ShowOrganization.Serve(func(ctx context.Context, in TenancyRequest) (tenants.ListedOrganization, error) {
			return of.Organization(ctx, in.Organization)
		}),
		ListProjects.Serve(func(ctx context.Context, in TenancyRequest) ([]tenants.ListedProject, error) {
			return of.Projects(ctx, in.Organization)
		}),
		CreateProject.ServeAs(now, func(ctx context.Context, call caller, in TenancyRequest) (tenants.ListedProject, error) {
			return do.CreateProject(ctx, call, in.Organization, in.Name)
		}),
		ShowProject.Serve(func(ctx context.Context, in TenancyRequest) (tenants.ListedProject, error) {
			return of.Project(ctx, in.Organization, in.Project)
		}),
		ListKeys.Serve(func(ctx context.Context, in TenancyRequest) ([]tenants.Key, error) {
			return of.Keys(ctx, in.Organization, in.Project)
		}),
		CreateKey.ServeAs(now, func(ctx context.Context, call caller, in TenancyRequest) (tenants.Key, error) {
			return do.CreateKey(ctx, call, in.Organization, in.Project, in.Name)
		}),
		RevealKey.ServeAs(now, func(ctx context.Context, call caller, in TenancyRequest) (tenants.Key, error) {
			return do.RevealKey(ctx, call, in.Organization, in.Project, in.Key)
		}),
		RevokeKey.ServeAs(now, func(ctx context.Context, call caller, in TenancyRequest) (tenants.Key, error) {
			return do.RevokeKey(ctx, call, in.Organization, in.Project, in.Key)
		}),
	}
}
