package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
)

// BackupCmd is "annals backup".
type BackupCmd struct {
	operatorapi.WhoFlags
	Dir     string `arg:"" help:"Folder to back up into; it must be empty or missing."`
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder; a server may be running on it."`
	HashKey string `name:"hash-key" setting:"ANNALS_HASH_KEY" help:"Key of the hashes, if it is configured and no server runs."`
	SealKey string `name:"seal-key" setting:"ANNALS_SEAL_KEY" help:"Keys that seal API keys, if they are configured and no server runs."`
	Prefix  string `name:"postgres-schema-prefix" setting:"ANNALS_POSTGRES_SCHEMA_PREFIX" help:"Start of the names of all schemas in the database, if it is configured and no server runs."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value."`
}

// Run lets the running server make the backup. Without a server, this process makes it.
func (c *BackupCmd) Run(ctx context.Context, env *Env) error {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return fmt.Errorf("back up into %s: %w", c.Dir, err)
	}
	done := operatorapi.Backup{Dir: dir}
	if server := operatorapi.Dial(c.DataDir); server.Running(ctx) {
		done, err = operatorapi.MakeBackup.Call(ctx, server, operatorapi.BackupRequest{Dir: dir})
	} else {
		folder := datafolder.Folder{Dir: c.DataDir, HashKey: c.HashKey, SealKey: c.SealKey, SchemaPrefix: c.Prefix}
		done.Position, err = folder.BackupOffline(ctx, dir)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, done)
	}
	_, err = fmt.Fprintf(env.Stdout,
		"backed up to %s, up to position %d; it holds keys in clear: keep it as safe as the data folder\n", done.Dir,
		done.Position)
	return err
}
