package doctor

import (
	"context"
	"fmt"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/projections/datapoints"
)

// cures are what helps for each damage of a stream.
var cures = map[string]string{
	datapoints.StreamDeleted:   "delete its data point with the API, or restore the event store from a backup",
	datapoints.StreamHidden:    "write to it, or take the soft deletion out of its metadata, before a scavenge",
	datapoints.StreamTruncated: "take the truncation out of its metadata before a scavenge",
	datapoints.StreamAged:      "take the age out of its metadata before a scavenge",
	datapoints.StreamCounted:   "take the count out of its metadata before a scavenge",
}

// checkStreams finds the streams that somebody else deleted, truncated or aged in the event store.
func (e *examination) checkStreams(ctx context.Context, service *operatorapi.Client) {
	err := operatorapi.ListDamaged.Call(ctx, service, operatorapi.None{}, func() {},
		func(d datapoints.DamagedStream) error {
			e.Damaged = append(e.Damaged, d)
			e.broken("streams", cures[d.Damage],
				"somebody else %s the stream %s (position %d)", damages[d.Damage], d.Stream, d.Position)
			return nil
		})
	switch {
	case err != nil:
		e.note("streams", "run annals doctor on the data folder of a process with the role write",
			"damaged streams cannot be listed: %v", err)
	case len(e.Damaged) == 0:
		e.ok("streams", "no stream is damaged")
	}
}

// damages are the verbs of the damages.
var damages = map[string]string{
	datapoints.StreamDeleted: "deleted", datapoints.StreamHidden: "hid", datapoints.StreamTruncated: "truncated",
	datapoints.StreamAged: "set an age for", datapoints.StreamCounted: "set a count for",
}

// text is a finding as one line.
func (f Finding) text() string {
	line := fmt.Sprintf("%-7s %s: %s", f.State, f.Check, f.Found)
	if f.Remedy != "" {
		line += " -> " + f.Remedy
	}
	return line
}
