// Package readapi is the routes of the API that only read, the service's own reads beside it, and the OpenAPI document of both sides.
package readapi

import (
	"context"
	_ "embed"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/recall"
)

// OpenAPI is the OpenAPI document of every route that is built.
//
//go:embed openapi.yaml
var OpenAPI []byte

// statuses reads the sends of a project.
type statuses interface {
	// Status is the state of one send and of its whole project. The fault is not-found for an id that no send of the project has.
	Status(ctx context.Context, project auth.Project, id uuid.UUID) (Status, error)
}

// projects reads the projects of an organization, archived ones too, oldest first.
type projects interface {
	Projects(ctx context.Context, organization uuid.UUID) ([]Project, error)
}

// recaller searches the memory of a project. Results of a page are never nil.
type recaller interface {
	Recall(ctx context.Context, q recall.Query) (recall.Page, error)
}

// meter counts the recalls that are answered, and takes their price where the plan has one.
type meter interface {
	// Recall searches between taking the price and counting the call. Its faults are those of the search, spend-cap-reached,
	// out-of-credits, and service-unavailable where it cannot be counted.
	Recall(ctx context.Context, p auth.Principal, identity string, at time.Time, search func() error) error
	// Ceiling is the most tokens of a page under a plan.
	Ceiling(plan metering.Plan) int
}

// usages reads what an organization has and used.
type usages interface {
	// Usage is that of the principal's project, or of the live projects of its organization for a management key, with every call
	// that was answered before it was asked. A project key is answered one project. The fault is service-unavailable while that
	// cannot be told.
	Usage(ctx context.Context, p auth.Principal, at time.Time) (Usage, error)
}

// Deps are the queries that the routes ask.
type Deps struct {
	Statuses statuses
	Projects projects
	Recall   recaller
	// Identities and Audiences read the directory.
	Identities identities
	Audiences  audiences
	Meter      meter
	Usage      usages
}

// Register adds the routes to a router of httpx.New.
func Register(e *echo.Echo, d Deps) {
	e.GET(auth.Prefix+"/ingest/:ingestionId", statusAPI{d.Statuses}.get)
	e.POST(auth.Prefix+"/recall", recallAPI{d.Recall, d.Meter}.recall)
	e.GET(auth.Prefix+"/projects", projectAPI{d.Projects}.list)
	e.GET(auth.Prefix+"/usage", usageAPI{d.Usage}.get)
	e.GET(auth.Prefix+"/identities", identityAPI{d.Identities}.list)
	e.GET(auth.Prefix+"/identities/:identity", identityAPI{d.Identities}.get)
	e.GET(auth.Prefix+"/audiences", audienceAPI{d.Audiences}.list)
	e.GET(auth.Prefix+"/audiences/:slug", audienceAPI{d.Audiences}.get)
	e.GET("/openapi.yaml", func(c echo.Context) error {
		return c.Blob(http.StatusOK, "application/yaml", OpenAPI)
	})
}
