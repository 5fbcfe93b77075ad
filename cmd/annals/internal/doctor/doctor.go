// Package doctor is the command "annals doctor".
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/projections/datapoints"
)

// Cmd is "annals doctor". It calls the server through the socket in the data folder.
type Cmd struct {
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	JSON    bool   `name:"json" help:"Print the list as one JSON value."`
}

// cures are what helps for each damage.
var cures = map[string]string{
	datapoints.StreamDeleted:   "delete its data point with the API, or restore the event store from a backup",
	datapoints.StreamHidden:    "write to it, or take the soft deletion out of its metadata, before a scavenge",
	datapoints.StreamTruncated: "take the truncation out of its metadata before a scavenge",
	datapoints.StreamAged:      "take the age out of its metadata before a scavenge",
	datapoints.StreamCounted:   "take the count out of its metadata before a scavenge",
}

// Run lists the damaged streams. It fails if there are any.
func (c *Cmd) Run(ctx context.Context, to io.Writer) error {
	list := []datapoints.DamagedStream{}
	err := operatorapi.ListDamaged.Call(ctx, operatorapi.Dial(c.DataDir), operatorapi.None{}, func() {},
		func(d datapoints.DamagedStream) error {
			list = append(list, d)
			return nil
		})
	if err != nil {
		return err
	}
	if c.JSON {
		err = json.NewEncoder(to).Encode(map[string]any{"damaged": list})
	} else {
		err = show(to, list)
	}
	if err != nil || len(list) == 0 {
		return err
	}
	return errors.New("somebody else deleted, truncated or aged streams of the service in the event store")
}

func show(to io.Writer, list []datapoints.DamagedStream) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(to, "no stream is damaged")
		return err
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "STREAM\tDAMAGE\tPOSITION\tWHAT HELPS")
	for _, d := range list {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", d.Stream, d.Damage, d.Position, cures[d.Damage])
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write list: %w", err)
	}
	return nil
}
