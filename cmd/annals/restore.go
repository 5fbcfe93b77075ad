package main

import (
	"context"
	"fmt"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
)

// RestoreCmd is "annals restore".
type RestoreCmd struct {
	Backup  string `arg:"" help:"Folder that annals backup filled."`
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder to create; it must be empty or missing."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value."`
}

// Run fills a data folder. The database and the index are built from the log when the server starts on it.
func (c *RestoreCmd) Run(ctx context.Context, env *Env) error {
	position, err := datafolder.Restore(ctx, c.Backup, c.DataDir)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, map[string]any{"dataDir": c.DataDir, "position": position})
	}
	_, err = fmt.Fprintf(env.Stdout,
		"restored to %s, up to position %d; annals serve --data-dir %s builds the rest from the log when it starts\n",
		c.DataDir, position, c.DataDir)
	return err
}
