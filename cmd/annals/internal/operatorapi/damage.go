package operatorapi

import (
	"context"

	"github.com/annals-project/annals/projections/datapoints"
)

// ListDamaged returns the streams that somebody else ended or hid in the event store, by position.
var ListDamaged = Stream[None, datapoints.DamagedStream]{"/operator/damaged"}

// DamagedStreams passes on damaged streams, as datapoints.Queries does.
type DamagedStreams interface {
	EachDamaged(ctx context.Context, emit func(datapoints.DamagedStream) error) error
}

// DamageRoutes returns the route that lists damaged streams.
func DamageRoutes(list DamagedStreams) []Route {
	return []Route{ListDamaged.Serve(
		func(ctx context.Context, _ None, _ func(), emit func(datapoints.DamagedStream) error) error {
			return list.EachDamaged(ctx, emit)
		})}
}
