// Package readapi is the routes of the API that only read, the operation routes of the service,
// and the OpenAPI document of all routes. It owns the JSON of its answers: projections return
// plain rows.
package readapi

import (
	"context"
	_ "embed"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/build"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/recall"
)

// OpenAPI is the OpenAPI document of every route that exists.
//
//go:embed openapi.yaml
var OpenAPI []byte

// statuses reads the sends of a project.
type statuses interface {
	// Status reads the status of a send and of its project. The fault is not-found if the project
	// has no such send.
	Status(ctx context.Context, project auth.Project, id uuid.UUID) (datapoints.Status, error)
}

// projects reads the projects of an organization.
type projects interface {
	// Projects returns all projects, archived ones too, oldest first.
	Projects(ctx context.Context, organization uuid.UUID) ([]account.Project, error)
}

// recaller searches the memory of a project.
type recaller interface {
	// Recall answers a caller at an instant, and charges it. The results are never nil. The fault may be
	// spend-cap-reached or out-of-credits.
	Recall(ctx context.Context, p auth.Principal, q recall.Query, at time.Time) (recall.Response, error)
}

// usages reads the usage of an organization.
type usages interface {
	// Usage returns the usage of the principal's project, or of the live projects of its organization
	// for a management key. It includes every call that was answered before. For a project key it
	// returns exactly one project. The fault is service-unavailable if that cannot be read now.
	Usage(ctx context.Context, p auth.Principal, at time.Time) (account.Usage, error)
}

// Deps are the queries of the routes. All are required by the routes that use them.
type Deps struct {
	Statuses statuses
	Projects projects
	Recall   recaller
	// Identities and Audiences read the directory.
	Identities identities
	Audiences  audiences
	Usage      usages
	// Rooms returns what may still be ingested, for estimates.
	Rooms    rooms
	Explain  explainer
	Trace    tracer
	Requests requestLog
	Audit    Audit
	// PlanTerms are the prices of recalls, and how long bodies of calls are kept.
	PlanTerms metering.PlanTerms
}

// Register adds the routes to a router of httpx.New.
func Register(e *echo.Echo, d Deps) {
	e.GET(auth.Prefix+"/ingest/:ingestionId", statusAPI{d.Statuses}.get)
	e.GET(auth.Prefix+"/ingest/:ingestionId/explain", explainAPI{d.Explain}.get)
	e.POST(auth.Prefix+"/ingest/estimate", newEstimateAPI(d.Rooms, admission.SmallEstimates, admission.Estimates).post)
	e.POST(auth.Prefix+"/recall", recallAPI{d.Recall, d.PlanTerms}.post)
	requests := requestAPI{d.Requests, d.PlanTerms}
	e.GET(auth.Prefix+"/requests", requests.list)
	e.GET(auth.Prefix+"/requests/histogram", requests.histogram)
	e.GET(auth.Prefix+"/requests/:requestId", requests.get)
	e.GET(auth.Prefix+"/projects", projectAPI{d.Projects}.list)
	e.GET(auth.Prefix+"/usage", usageAPI{d.Usage}.get)
	e.GET(auth.Prefix+"/identities", identityAPI{d.Identities}.list)
	e.GET(auth.Prefix+"/identities/:identity", identityAPI{d.Identities}.get)
	e.GET(auth.Prefix+"/audiences", audienceAPI{d.Audiences}.list)
	e.GET(auth.Prefix+"/audiences/:slug", audienceAPI{d.Audiences}.get)
	traces := traceAPI{d.Trace}
	e.GET(auth.Prefix+"/trace/roots", traces.roots)
	e.GET(auth.Prefix+"/trace/nodes/:id", traces.node)
	e.GET(auth.Prefix+"/trace/lineage/:rootId", traces.lineage)
	e.GET(auth.Prefix+"/trace/timeline/:rootId", traces.timeline)
	audits := auditAPI{d.Audit}
	e.GET(auth.Prefix+"/audit/:organization/checkpoint", audits.checkpoint)
	e.GET(auth.Prefix+"/audit/:organization/policy", audits.policy)
	e.GET(auth.Prefix+"/audit/:organization/tile/:level/*", audits.tile)
	e.GET(auth.Prefix+"/audit/:organization/proofs", audits.proofs)
	e.GET("/openapi.yaml", func(c echo.Context) error { return c.Blob(http.StatusOK, "application/yaml", OpenAPI) })
}

// Operation is what the operation routes read. They are outside /api/v1 and take no credential.
type Operation struct {
	// Conditions are what /readyz shows.
	Conditions func(ctx context.Context) condition.List
	// Metrics are served in the Prometheus text format.
	Metrics prometheus.Gatherer
	// Private is true if only operators reach the router. Then /readyz shows causes.
	Private bool
	// Log gets the errors of collecting metrics. It may be nil.
	Log *slog.Logger
}

var readMethods = []string{http.MethodGet, http.MethodHead}

// RegisterHealth adds /healthz to a router.
func RegisterHealth(e *echo.Echo) {
	e.Match(readMethods, "/healthz", func(c echo.Context) error {
		return c.JSON(http.StatusOK, map[string]string{"status": "ok", "version": build.Get().Version})
	})
}

// RegisterOperation adds /healthz, /readyz and /metrics to a router.
func RegisterOperation(e *echo.Echo, o Operation) {
	RegisterHealth(e)
	e.Match(readMethods, "/readyz", func(c echo.Context) error {
		now := o.Conditions(c.Request().Context())
		parts, also := now.NotReady(o.Private), now.Remarks(o.Private)
		if len(parts) == 0 {
			return c.JSON(http.StatusOK, struct {
				Status string `json:"status"`
				condition.Remarks
			}{"ready", also})
		}
		unready := fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s", parts[0]).With("notReady", parts)
		remarks, err := named(also)
		if err != nil {
			return err
		}
		for name, remark := range remarks {
			unready = unready.With(name, remark)
		}
		return unready
	})
	options := promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}
	if o.Log != nil {
		options.ErrorLog = slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn)
	}
	e.GET("/metrics", echo.WrapHandler(promhttp.HandlerFor(o.Metrics, options)))
}

// named returns the remarks that there are, by their names in JSON.
func named(also condition.Remarks) (remarks map[string]json.RawMessage, err error) {
	text, err := json.Marshal(also)
	if err != nil {
		return nil, err
	}
	return remarks, json.Unmarshal(text, &remarks)
}
