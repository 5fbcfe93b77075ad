package readapi

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/annals-project/annals/domain/fault"
)

// NotReady is one part of the service that cannot do its work, and why.
type NotReady struct {
	Part string `json:"part"`
	// Reason holds no text of an error, since everyone who reaches the API can read it.
	Reason string `json:"reason"`
	// Cause is the error, which only operators read.
	Cause string `json:"-"`
}

// Remarks are what an operator should know of a service, ready or not.
type Remarks struct {
	// WritesRefused are the reasons why calls that write are refused for the time being; none where they are taken.
	WritesRefused []string `json:"writesRefused,omitempty"`
	// OpenTooLong describes an item or send that is open for too long, "" if there is none.
	OpenTooLong string `json:"openTooLong,omitempty"`
	// RecallElsewhere is why this process does not answer recall, "" where it does.
	RecallElsewhere string `json:"recallElsewhere,omitempty"`
	// RecallIncomplete names the parts of the index that lost documents and are filled again from the log: recall of the projects
	// in them is refused until they are whole.
	RecallIncomplete []string `json:"recallIncomplete,omitempty"`
	// BulkWritesLost counts bulk writes of identities that were given up since their rows could not be read.
	BulkWritesLost int `json:"bulkWritesLost,omitempty"`
	// SetAside are the events that projections pass over.
	SetAside []SetAside `json:"setAside,omitempty"`
}

// SetAside is an event that projections pass over; none named are all.
type SetAside struct {
	Position    uint64   `json:"position"`
	Type        string   `json:"type"`
	Projections []string `json:"projections,omitempty"`
}

// Operation is what the reads of an operator ask, which take no credential and stand outside /api/v1.
type Operation struct {
	// Ready lists what is not ready; nothing means ready.
	Ready func(ctx context.Context) []NotReady
	// Remarks are told along with that; nil has none.
	Remarks func() Remarks
	// Metrics are served in the Prometheus text format.
	Metrics prometheus.Gatherer
	// Private says that only operators reach the router: they are shown causes.
	Private bool
	// Log takes what keeps metrics from being gathered.
	Log *slog.Logger
}

var readMethods = []string{http.MethodGet, http.MethodHead}

// RegisterHealth adds /healthz to a router.
func RegisterHealth(e *echo.Echo) {
	e.Match(readMethods, "/healthz", func(c echo.Context) error {
		return c.JSON(http.StatusOK, map[string]string{"status": "ok"})
	})
}

// RegisterOperation adds /healthz, /readyz and /metrics to a router.
func RegisterOperation(e *echo.Echo, o Operation) {
	RegisterHealth(e)
	e.Match(readMethods, "/readyz", func(c echo.Context) error {
		var also Remarks
		if o.Remarks != nil {
			also = o.Remarks()
		}
		parts := o.Ready(c.Request().Context())
		for i := range parts {
			if o.Private && parts[i].Cause != "" {
				parts[i].Reason += ": " + parts[i].Cause
			}
		}
		if len(parts) == 0 {
			return c.JSON(http.StatusOK, struct {
				Status string `json:"status"`
				Remarks
			}{"ready", also})
		}
		unready := fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s: %s", parts[0].Part, parts[0].Reason).With("notReady", parts)
		if len(also.WritesRefused) > 0 {
			unready = unready.With("writesRefused", also.WritesRefused)
		}
		if also.OpenTooLong != "" {
			unready = unready.With("openTooLong", also.OpenTooLong)
		}
		if also.RecallElsewhere != "" {
			unready = unready.With("recallElsewhere", also.RecallElsewhere)
		}
		if len(also.RecallIncomplete) > 0 {
			unready = unready.With("recallIncomplete", also.RecallIncomplete)
		}
		if also.BulkWritesLost > 0 {
			unready = unready.With("bulkWritesLost", also.BulkWritesLost)
		}
		if len(also.SetAside) > 0 {
			unready = unready.With("setAside", also.SetAside)
		}
		return unready
	})
	options := promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}
	if o.Log != nil {
		options.ErrorLog = slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn)
	}
	e.GET("/metrics", echo.WrapHandler(promhttp.HandlerFor(o.Metrics, options)))
}
