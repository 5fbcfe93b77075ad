package operatorapi

import (
	"context"
	"errors"

	"github.com/annals-project/annals/eventstore/inspect"
)

// The streams of stored events.
var (
	tailLog    = Stream[inspect.Tail, inspect.Event]{"/operator/tail"}
	readEvents = Stream[inspect.Range, inspect.Event]{"/operator/events"}
)

// EventRoutes returns the routes that show the events of a log.
func EventRoutes(log inspect.Log) []Route {
	read := func(ctx context.Context, in inspect.Range, _ func(), emit func(inspect.Event) error) error {
		return log.Events(ctx, in, emit)
	}
	return []Route{tailLog.Serve(log.Tail), readEvents.Serve(read)}
}

// Tail is inspect.Log.Tail of a running server. It ends also if the server stops.
func (c *Client) Tail(ctx context.Context, t inspect.Tail, opened func(), emit func(inspect.Event) error) error {
	if err := tailLog.Call(ctx, c, t, opened, emit); err != nil {
		return err
	}
	return errors.New("the server has stopped")
}

// Events is inspect.Log.Events of a running server.
func (c *Client) Events(ctx context.Context, in inspect.Range, emit func(inspect.Event) error) error {
	return readEvents.Call(ctx, c, in, func() {}, emit)
}
