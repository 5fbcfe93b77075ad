package readapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/build"
	"github.com/annals-project/annals/internal/condition"
)

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
