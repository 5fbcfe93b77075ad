package operatorapi

import (
	"context"
	"net/http"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/condition"
)

// ServiceStatus returns how the service is that runs on a data folder.
var ServiceStatus = Operation[None, Status]{http.MethodGet, "/operator/status"}

// Status is how a service is, as its operator sees it.
type Status struct {
	PID int `json:"pid"`
	// DataDir is the absolute path of the data folder.
	DataDir string `json:"dataDir"`
	// API, Console, MCP and Health are addresses. Those that this process does not serve are "".
	API     string `json:"api"`
	Console string `json:"console,omitempty"`
	MCP     string `json:"mcp,omitempty"`
	Health  string `json:"health"`
	// FailedSends are those that failed in the last hour.
	FailedSends int `json:"failedSends"`
	// Projections are how far each is.
	Projections []condition.Projection `json:"projections"`
	// Settings are those that differ from the defaults, by their variables. Secrets are masked.
	Settings map[string]string `json:"settings"`
	condition.Details
	// NotReady are the parts that are not ready, with their causes.
	NotReady []client.NotReady `json:"notReady"`
	Remarks  client.Remarks    `json:"remarks"`
}

// StatusRoute returns the route of the state of a service.
func StatusRoute(read func(context.Context) Status) Route {
	return ServiceStatus.Serve(func(ctx context.Context, _ None) (Status, error) { return read(ctx), nil })
}
