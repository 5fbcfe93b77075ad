package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
)

// EraseCmd is "annals erase".
type EraseCmd struct {
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	Now     bool   `name:"now" help:"Erase all that was deleted, from tables, index and event store, and wait until that is done."`
	JSON    bool   `name:"json" help:"Print the answer as one JSON value."`
}

// Run shows what waits to be erased, or erases it.
func (c *EraseCmd) Run(ctx context.Context, env *Env) error {
	server := operatorapi.Dial(c.DataDir)
	if !c.Now {
		pending, err := operatorapi.PendingErasures.Call(ctx, server, operatorapi.None{})
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(env.Stdout, pending)
		}
		printPending(env.Stdout, pending)
		return nil
	}
	done, err := operatorapi.EraseNow.Call(ctx, server, operatorapi.None{})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, done)
	}
	_, _ = fmt.Fprintf(env.Stdout, "deletions cleaned: %d\nremoved identities cleared: %d\nstreams ended: %d\n"+
		"blobs swept: %d\ntables vacuumed: %d\nindexes rewritten: %d\nevent store: %s\n",
		done.Deletions, done.Identities, done.Streams, done.Blobs, done.Tables, done.Indexes, done.Store)
	printPending(env.Stdout, done.Left)
	return nil
}

func printPending(to io.Writer, p operatorapi.Pending) {
	if p.FanOuts+p.Deletions+p.Identities+p.Blobs == 0 {
		_, _ = fmt.Fprintln(to, "nothing waits to be erased")
		return
	}
	_, _ = fmt.Fprintf(to, "waiting: %s of %s, %s to be completed",
		english.Plural(p.Deletions, "deletion", "deletions"),
		english.Plural(p.DataPoints, "data point", "data points"),
		english.Plural(p.FanOuts, "operation", "operations"))
	if p.Identities > 0 {
		_, _ = fmt.Fprintf(to, ", %s", english.Plural(p.Identities, "removed identity", "removed identities"))
	}
	if p.Blobs > 0 {
		_, _ = fmt.Fprintf(to, ", %d texts of sends that were never stored", p.Blobs)
		if p.Until != nil {
			_, _ = fmt.Fprintf(to, " (until %s)", p.Until.UTC().Format(time.RFC3339))
		}
	}
	_, _ = fmt.Fprintln(to)
}
