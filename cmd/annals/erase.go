package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/annals-project/annals/internal/operator"
)

// EraseCmd is "annals erase".
type EraseCmd struct {
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	Now     bool   `name:"now" help:"Erase all that was deleted, from tables, index and event store, and wait until that is done."`
	JSON    bool   `name:"json" help:"Print the answer as one JSON value."`
}

// Run shows what waits to be erased, or erases it.
func (c *EraseCmd) Run(ctx context.Context, env *Env) error {
	server := operator.Dial(c.DataDir)
	if !c.Now {
		pending, err := server.Pending(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(env.Stdout, pending)
		}
		printPending(env.Stdout, pending)
		return nil
	}
	done, err := server.EraseNow(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, done)
	}
	_, _ = fmt.Fprintf(env.Stdout, "deletions cleaned: %d\nremoved identities cleared: %d\nstreams ended: %d\nblobs swept: %d\ntables vacuumed: %d\nindexes rewritten: %d\nevent store: %s\n",
		done.Deletions, done.Identities, done.Streams, done.Blobs, done.Tables, done.Indexes, done.Store)
	printPending(env.Stdout, done.Left)
	return nil
}

func printPending(to io.Writer, p operator.Pending) {
	if p.FanOuts+p.Deletions+p.Identities+p.Blobs == 0 {
		_, _ = fmt.Fprintln(to, "nothing waits to be erased")
		return
	}
	_, _ = fmt.Fprintf(to, "waiting: %s of %s, %s to be completed", plural(p.Deletions, "deletion", "deletions"), plural(p.DataPoints, "data point", "data points"),
		plural(p.FanOuts, "operation", "operations"))
	if p.Identities > 0 {
		_, _ = fmt.Fprintf(to, ", %s", plural(p.Identities, "removed identity", "removed identities"))
	}
	if p.Blobs > 0 {
		_, _ = fmt.Fprintf(to, ", %d texts of sends that were never stored", p.Blobs)
		if p.Until != nil {
			_, _ = fmt.Fprintf(to, " (until %s)", p.Until.UTC().Format(time.RFC3339))
		}
	}
	_, _ = fmt.Fprintln(to)
}
