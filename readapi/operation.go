package readapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/build"
)

// Reason is a constant sentence: every client can read it, so it holds no text of an error, no address and no name
// that somebody chose.
type Reason string

// NotReady is a part of the service that cannot work, and why.
type NotReady struct {
	Part   string `json:"part"`
	Reason Reason `json:"reason"`
	// Position is that of the event in question, 0 for none.
	Position uint64 `json:"position,omitempty"`
	// Cause is the error. Only operators read it.
	Cause string `json:"cause,omitempty"`
}

// String is the part and why it cannot work, on one line.
func (n NotReady) String() string {
	text := n.Part + ": " + string(n.Reason)
	if n.Position > 0 {
		text += fmt.Sprintf(" (position %d)", n.Position)
	}
	if n.Cause != "" {
		text += ": " + n.Cause
	}
	return text
}

// Remarks are what an operator should know about a service, ready or not.
type Remarks struct {
	// CatchingUp describes how far a start has read the log, "" once it has.
	CatchingUp string `json:"catchingUp,omitempty"`
	// WritesRefused are the reasons why writes are refused now, none if they are accepted.
	WritesRefused []string `json:"writesRefused,omitempty"`
	// OpenTooLong describes an item or send that is open for too long, "" if there is none.
	OpenTooLong string `json:"openTooLong,omitempty"`
	// RecallElsewhere is why this process refuses recall, "" if it does not.
	RecallElsewhere string `json:"recallElsewhere,omitempty"`
	// RecallIncomplete names the parts of the index that lost documents. The service refuses recall of
	// their projects until it has filled them from the log.
	RecallIncomplete []string `json:"recallIncomplete,omitempty"`
	// SemanticSearchOff is why recall searches by words alone although vectors are stored, "" if it does not.
	SemanticSearchOff string `json:"semanticSearchOff,omitempty"`
	// ServersDown describes the servers that background work calls and that cannot be used, such as the model.
	ServersDown []string `json:"serversDown,omitempty"`
	// SendsFailed describes the sends that failed lately, "" if none did.
	SendsFailed string `json:"sendsFailed,omitempty"`
	// BulkWritesLost counts the bulk writes of identities that were abandoned, since their rows could
	// not be read.
	BulkWritesLost int `json:"bulkWritesLost,omitempty"`
	// SetAside are the events that projections ignore.
	SetAside []SetAside `json:"setAside,omitempty"`
}

// SetAside is an event that projections ignore. No projections means all of them.
type SetAside struct {
	Position    uint64   `json:"position"`
	Type        string   `json:"type"`
	Projections []string `json:"projections,omitempty"`
}

// Operation is what the operation routes read. They are outside /api/v1 and take no credential.
type Operation struct {
	// Ready returns the parts that are not ready, none if the service is ready.
	Ready func(ctx context.Context) []NotReady
	// Remarks returns what else /readyz shows. It may be nil.
	Remarks func() Remarks
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
		var also Remarks
		if o.Remarks != nil {
			also = o.Remarks()
		}
		parts := o.Ready(c.Request().Context())
		for i := range parts {
			if !o.Private {
				parts[i].Cause = ""
			}
		}
		if len(parts) == 0 {
			return c.JSON(http.StatusOK, struct {
				Status string `json:"status"`
				Remarks
			}{"ready", also})
		}
		unready := fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s", parts[0]).
			With("notReady", parts)
		if also.CatchingUp != "" {
			unready = unready.With("catchingUp", also.CatchingUp)
		}
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
		if also.SemanticSearchOff != "" {
			unready = unready.With("semanticSearchOff", also.SemanticSearchOff)
		}
		if len(also.ServersDown) > 0 {
			unready = unready.With("serversDown", also.ServersDown)
		}
		if also.SendsFailed != "" {
			unready = unready.With("sendsFailed", also.SendsFailed)
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
