// Package health is the pages of the state of the service, and of its organizations for operators.
package health

import (
	"context"
	"embed"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read.
type Deps struct {
	NotReady func(ctx context.Context) []condition.NotReady
	// Remarks returns also what only operators may read if private is true.
	Remarks     func(private bool) condition.Remarks
	Projections func() []condition.Projection
	Details     func() condition.Details
	Projects    interface {
		Projects(ctx context.Context, organization uuid.UUID) ([]access.Project, error)
	}
	Readiness interface {
		ReadinessOf(ctx context.Context, projects []uuid.UUID) (map[uuid.UUID]datapoints.Readiness, error)
	}
	Organizations interface {
		Organizations(ctx context.Context, organization string) ([]tenants.ListedOrganization, error)
	}
}

// Area returns the pages.
func Area(d Deps) web.Area {
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET /health", Needs: web.Member, Serve: d.health},
		{Pattern: "GET /operator/organizations", Needs: web.Operator, Serve: d.organizations},
	}}
}
