package operatorapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/eventstore/inspect"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/projections/recall/explained"
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

// ExplainRecall explains how a recall is answered, and where sources were lost.
var ExplainRecall = Operation[explained.Request, explained.Explanation]{http.MethodPost, "/operator/recall/explain"}

// NewExplainRequest returns the request for a recall, in the project of a key.
func NewExplainRequest(q client.RecallRequest, key string, sourceIDs []string) (explained.Request, error) {
	in := explained.Request{SourceIDs: sourceIDs}
	if key != "" {
		hash := secret.Hash(key)
		in.KeyHash = hash[:]
	}
	var err error
	if in.Recall, err = json.Marshal(q); err != nil {
		return in, fmt.Errorf("encode query: %w", err)
	}
	return in, nil
}

// ExplainRoute returns the route of ExplainRecall.
func ExplainRoute(by explained.Explainer) Route { return ExplainRecall.Serve(by.Explain) }
