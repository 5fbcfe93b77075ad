package readapi

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/annals-project/annals/domain/fault"
)

// NotReady is one part of the service that cannot do its work, and why.
type NotReady struct {
	Part   string `json:"part"`
	Reason string `json:"reason"`
}

// Operation is what the reads of an operator ask, which take no credential and stand outside /api/v1.
type Operation struct {
	// Ready lists what is not ready; nothing means ready.
	Ready func(ctx context.Context) []NotReady
	// Metrics are served in the Prometheus text format.
	Metrics prometheus.Gatherer
}

// RegisterOperation adds /healthz, /readyz and /metrics to a router.
func RegisterOperation(e *echo.Echo, o Operation) {
	read := []string{http.MethodGet, http.MethodHead}
	e.Match(read, "/healthz", func(c echo.Context) error {
		return c.JSON(http.StatusOK, map[string]string{"status": "ok"})
	})
	e.Match(read, "/readyz", func(c echo.Context) error {
		if parts := o.Ready(c.Request().Context()); len(parts) > 0 {
			return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s: %s", parts[0].Part, parts[0].Reason).With("notReady", parts)
		}
		return c.JSON(http.StatusOK, map[string]string{"status": "ready"})
	})
	e.GET("/metrics", echo.WrapHandler(promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{})))
}
