package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/annals-project/annals/cmd/annals/internal/logging"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/cmd/annals/internal/statusview"
	"github.com/annals-project/annals/projections/runner"
)

// RebuildCmd is "annals rebuild".
type RebuildCmd struct {
	Settings
	Projection string `arg:"" help:"Projection to build from the log: access, audit, datapoints, directory, embeddings, history, memories, reads, recallindex, trace or usage; or all. Without a server on the data folder it takes the settings of annals serve."`
	Rate       int    `name:"rate" help:"Events a second at most, to spare the event store and the database; 0 is no limit."`
	Restart    bool   `name:"restart" help:"Begin at position 0, although an interrupted rebuild could be continued."`
	Force      bool   `name:"force" help:"Switch over although the rebuilt rows are not as many as the live ones."`
	OlderCopy  bool   `name:"older-copy" help:"Accept an event store that was put back from an older copy: drop what was built from events that it no longer holds. Stop every service first."`
	JSON       bool   `name:"json" help:"Print one JSON value a line during the rebuild."`
}

// rebuilder is the projections of a running server, or of this process.
type rebuilder interface {
	Projections(ctx context.Context) ([]string, error)
	RebuildAll(
		ctx context.Context, names []string, options runner.RebuildOptions, report func(runner.RebuildProgress),
	) error
}

// Validate names every setting that cannot work.
func (c *RebuildCmd) Validate() error { return c.Check() }

// Run rebuilds through the server that runs on the data folder. If none runs, it opens what a
// server would open and rebuilds in this process.
func (c *RebuildCmd) Run(ctx context.Context, env *Env) (err error) {
	if c.Rate < 0 {
		return fmt.Errorf("--rate is %d: want events a second, 0 for no limit", c.Rate)
	}
	options := runner.RebuildOptions{Rate: c.Rate, Restart: c.Restart, Force: c.Force, OlderCopy: c.OlderCopy}
	running := operatorapi.Dial(c.DataDir)
	var by rebuilder = running
	if isRunning := running.Running(ctx); isRunning && c.OlderCopy {
		return errors.New("--older-copy: a server runs on the data folder; stop every service first")
	} else if !isRunning {
		alone, done, err := c.alone(ctx, env)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, done()) }()
		by = alone
	}
	names, err := by.Projections(ctx)
	if err != nil {
		return err
	}
	if c.Projection != "all" {
		if !slices.Contains(names, c.Projection) {
			return fmt.Errorf("there is no projection %s: want all, or one of %v", c.Projection, names)
		}
		names = []string{c.Projection}
	}
	show := statusview.NewRebuildView(env.Stdout, c.JSON)
	return errors.Join(by.RebuildAll(ctx, names, options, show.Report), show.Err())
}

// alone opens the parts of a server without serving. The data folder is locked meanwhile.
func (c *RebuildCmd) alone(ctx context.Context, env *Env) (_ rebuilder, done func() error, err error) {
	level, err := c.Level()
	if err != nil {
		return nil, nil, err
	}
	cfg, err := c.config()
	if err != nil {
		return nil, nil, err
	}
	cfg.Roles = nil // it needs the parts of every role
	cfg.Logger = logging.New(env.Stderr, logging.Format(c.LogFormat), max(level, slog.LevelWarn))
	local, err := server.OpenRebuilder(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	return local, local.Close, nil
}
