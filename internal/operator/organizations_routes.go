package operator

import (
	"context"
	"net/http"
)

// The routes of the organizations; each is a POST of its request as JSON.
const (
	pathOrganizations = "/operator/organizations"
	pathPlan          = "/operator/organizations/plan"
	pathCredits       = "/operator/organizations/credits"
	pathSpendCap      = "/operator/organizations/spend-cap"
	pathRotate        = "/operator/organizations/rotate-management-key"
	pathArchive       = "/operator/projects/archive"
	pathCaps          = "/operator/projects/caps"
)

// OrganizationRoutes serves the commands on organizations and their projects.
func OrganizationRoutes(o Organizations) Routes {
	return func(mux *http.ServeMux, out answers) {
		mux.HandleFunc("POST "+pathOrganizations, asked(out, o.CreateOrganization))
		mux.HandleFunc("POST "+pathPlan, asked(out, o.SetPlan))
		mux.HandleFunc("POST "+pathCredits, asked(out, o.GrantCredits))
		mux.HandleFunc("POST "+pathSpendCap, asked(out, o.SetSpendCap))
		mux.HandleFunc("POST "+pathRotate, asked(out, o.RotateManagementKey))
		mux.HandleFunc("POST "+pathArchive, asked(out, o.SetArchived))
		mux.HandleFunc("POST "+pathCaps, asked(out, o.SetCaps))
	}
}

var _ Organizations = (*Client)(nil)

// CreateOrganization implements Organizations.
func (c *Client) CreateOrganization(ctx context.Context, in NewOrganization) (Organization, error) {
	return ask[Organization](ctx, c, pathOrganizations, in)
}

// SetPlan implements Organizations.
func (c *Client) SetPlan(ctx context.Context, in PlanRequest) (Organization, error) {
	return ask[Organization](ctx, c, pathPlan, in)
}

// GrantCredits implements Organizations.
func (c *Client) GrantCredits(ctx context.Context, in CreditsRequest) (Organization, error) {
	return ask[Organization](ctx, c, pathCredits, in)
}

// SetSpendCap implements Organizations.
func (c *Client) SetSpendCap(ctx context.Context, in SpendCapRequest) (Organization, error) {
	return ask[Organization](ctx, c, pathSpendCap, in)
}

// RotateManagementKey implements Organizations.
func (c *Client) RotateManagementKey(ctx context.Context, in RotateRequest) (Organization, error) {
	return ask[Organization](ctx, c, pathRotate, in)
}

// SetArchived implements Organizations.
func (c *Client) SetArchived(ctx context.Context, in ArchiveRequest) (Project, error) {
	return ask[Project](ctx, c, pathArchive, in)
}

// SetCaps implements Organizations.
func (c *Client) SetCaps(ctx context.Context, in CapsRequest) (Project, error) {
	return ask[Project](ctx, c, pathCaps, in)
}
