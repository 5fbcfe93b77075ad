package operatorapi

import (
	"context"
	"net/http"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/tenants"
)

// OrganizationCommand is a command on an organization or one of its projects. A running server performs it with Call.
// Without one, a process that reaches the event store performs it with On. ErrRefused is its refusal.
type OrganizationCommand[In, Out any] struct {
	Operation[In, Out]
	// On performs the command in this process.
	On func(ctx context.Context, s *commands.Service, call commands.Call, in In) (Out, error)
}

func command[In, Out any](
	path string, on func(ctx context.Context, s *commands.Service, call commands.Call, in In) (Out, error),
) OrganizationCommand[In, Out] {
	return OrganizationCommand[In, Out]{Operation[In, Out]{http.MethodPost, path}, on}
}

func (c OrganizationCommand[In, Out]) route(s *commands.Service, now func() time.Time) Route {
	return c.ServeAs(now, func(ctx context.Context, call commands.Call, in In) (Out, error) {
		return c.On(ctx, s, call, in)
	})
}

type (
	organization = tenants.Organization
	project      = tenants.Project
	service      = commands.Service
	caller       = commands.Call
)

// The commands on organizations and their projects.
var (
	CreateOrganization = command("/operator/organizations",
		func(ctx context.Context, s *service, call caller, in NewOrganization) (organization, error) {
			return s.CreateOrganization(ctx, call, in.NewOrganization)
		})
	SetPlan = command("/operator/organizations/plan",
		func(ctx context.Context, s *service, call caller, in PlanRequest) (organization, error) {
			return s.SetPlan(ctx, call, in.Organization, in.Plan)
		})
	GrantCredits = command("/operator/organizations/credits",
		func(ctx context.Context, s *service, call caller, in CreditsRequest) (organization, error) {
			return s.GrantCredits(ctx, call, in.Organization, in.Tenths)
		})
	SetSpendCap = command("/operator/organizations/spend-cap",
		func(ctx context.Context, s *service, call caller, in SpendCapRequest) (organization, error) {
			return s.SetSpendCap(ctx, call, in.Organization, in.Tenths)
		})
	RotateManagementKey = command("/operator/organizations/rotate-management-key",
		func(ctx context.Context, s *service, call caller, in Target) (organization, error) {
			return s.RotateManagementKey(ctx, call, in.Organization)
		})
	SetArchived = command("/operator/projects/archive",
		func(ctx context.Context, s *service, call caller, in ArchiveRequest) (project, error) {
			return s.SetArchived(ctx, call, in.Organization, in.Slug, in.Archived)
		})
	SetCaps = command("/operator/projects/caps",
		func(ctx context.Context, s *service, call caller, in CapsRequest) (project, error) {
			return s.SetCaps(ctx, call, in.Organization, in.Slug, in.Caps)
		})
)

// OrganizationRoutes returns the routes of the commands on organizations and their projects.
func OrganizationRoutes(s *commands.Service, now func() time.Time) []Route {
	return []Route{
		CreateOrganization.route(s, now), SetPlan.route(s, now), GrantCredits.route(s, now), SetSpendCap.route(s, now),
		RotateManagementKey.route(s, now), SetArchived.route(s, now), SetCaps.route(s, now),
	}
}

// Target names an organization, by name or id or "" for the only one, and the operator.
type Target struct {
	Organization string `json:"organization,omitempty"`
	By           string `json:"by"`
}

// NewOrganization creates an organization. By is a remark of the operator.
type NewOrganization struct {
	commands.NewOrganization
	By string `json:"by"`
}

// PlanRequest puts an organization on a plan.
type PlanRequest struct {
	Target
	Plan metering.Plan `json:"plan"`
}

// CreditsRequest grants credits in tenths, or takes them back below 0.
type CreditsRequest struct {
	Target
	Tenths int64 `json:"tenths"`
}

// SpendCapRequest caps the charges of a month, in tenths of a credit. Nil is no cap.
type SpendCapRequest struct {
	Target
	Tenths *int64 `json:"tenths"`
}

// ArchiveRequest archives a project or restores it.
type ArchiveRequest struct {
	Target
	Slug     string `json:"slug"`
	Archived bool   `json:"archived"`
}

// CapsRequest changes the ingestion cap, the credit cap, or both.
type CapsRequest struct {
	Target
	Slug string `json:"slug"`
	commands.Caps
}
