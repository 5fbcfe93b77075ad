package operatorapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/projections/runner"
)

// The operations on projections. ListProjections returns the names in the order in which all of them
// are rebuilt. SetAside lets projections ignore an event; ErrRefused is its refusal. ListSetAside
// returns such events by position. A rebuild ends if the caller goes away; a later one continues it.
var (
	ListProjections = Operation[None, []string]{http.MethodGet, "/operator/projections"}
	SetAside        = Operation[SetAsideRequest, registry.EventSetAside]{http.MethodPost, "/operator/set-aside"}
	ListSetAside    = Operation[None, []registry.EventSetAside]{http.MethodGet, "/operator/set-aside"}
	rebuild         = Stream[rebuildRequest, runner.RebuildProgress]{"/operator/projections/rebuild"}
)

// SetAsideRequest sets an event aside. By is a remark of the operator.
type SetAsideRequest struct {
	commands.SetAside
	By string `json:"by"`
}

type rebuildRequest struct {
	Projection string `json:"projection"`
	runner.RebuildOptions
}

// ProjectionRoutes returns the routes of the operations on the projections of a process.
func ProjectionRoutes(runtime *runner.Runtime, asides commands.EventAsides, now func() time.Time) []Route {
	return []Route{
		ListProjections.Serve(func(context.Context, None) ([]string, error) { return runtime.Names(), nil }),
		SetAside.ServeAs(now, func(
			ctx context.Context, call commands.Call, in SetAsideRequest,
		) (registry.EventSetAside, error) {
			return asides.SetAside(ctx, call, in.SetAside)
		}),
		ListSetAside.Serve(func(ctx context.Context, _ None) ([]registry.EventSetAside, error) {
			return runtime.ListSetAside(ctx)
		}),
		rebuild.Serve(func(
			ctx context.Context, in rebuildRequest, _ func(), emit func(runner.RebuildProgress) error,
		) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			return runtime.RebuildWith(ctx, in.Projection, in.RebuildOptions, func(p runner.RebuildProgress) {
				if err := emit(p); err != nil {
					cancel(err) // the caller has gone away
				}
			})
		}),
	}
}

// Projections returns the projections of a running server.
func (c *Client) Projections(ctx context.Context) ([]string, error) {
	return ListProjections.Call(ctx, c, None{})
}

// RebuildAll rebuilds projections of a running server one after the other: the server needs the other
// processors for its calls.
func (c *Client) RebuildAll(
	ctx context.Context, names []string, options runner.RebuildOptions, report func(runner.RebuildProgress),
) error {
	for _, name := range names {
		if err := c.Rebuild(ctx, name, options, report); err != nil {
			return err
		}
	}
	return nil
}

// Rebuild rebuilds a projection of a running server and calls report with the progress. The server
// ends the rebuild with the context.
func (c *Client) Rebuild(
	ctx context.Context, projection string, options runner.RebuildOptions, report func(runner.RebuildProgress),
) error {
	done := false
	err := rebuild.Call(ctx, c, rebuildRequest{projection, options}, func() {}, func(p runner.RebuildProgress) error {
		done = p.Done
		report(p)
		return nil
	})
	if err == nil && !done {
		err = errors.New("the server stopped before the rebuild was done")
	}
	return err
}
