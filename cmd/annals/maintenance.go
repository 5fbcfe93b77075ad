package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/logging"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/internal/minilm"
	"github.com/annals-project/annals/projections/runner"
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
	show := newRebuildView(env.Stdout, c.JSON)
	return errors.Join(by.RebuildAll(ctx, names, options, show.report), show.failure())
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

// rebuildView prints the progress of each rebuild, at most twice a second.
type rebuildView struct {
	to   io.Writer
	json bool

	mu   sync.Mutex
	last map[string]time.Time // by projection
	err  error
}

// newRebuildView makes a view that prints text, or JSON lines.
func newRebuildView(to io.Writer, asJSON bool) *rebuildView {
	return &rebuildView{to: to, json: asJSON, last: map[string]time.Time{}}
}

// failure returns the first error of printing.
func (v *rebuildView) failure() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// report prints the progress of a rebuild, unless it did so right before.
func (v *rebuildView) report(r runner.RebuildProgress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !r.Done && time.Since(v.last[r.Projection]) < 500*time.Millisecond || v.err != nil {
		return
	}
	v.last[r.Projection] = time.Now()
	if v.json {
		v.err = json.NewEncoder(v.to).Encode(r)
	} else {
		v.err = printRebuild(v.to, r)
	}
}

// printRebuild writes the progress as one line.
func printRebuild(out io.Writer, r runner.RebuildProgress) error {
	if r.Done {
		_, err := fmt.Fprintf(
			out, "%s: rebuilt, %d events in %.1f s (%.0f events/s), %s\n",
			r.Projection, r.Events, r.Seconds, r.Rate(), comparedWith(r),
		)
		return err
	}
	_, err := fmt.Fprintf(
		out, "%s: position %d of %d, %.0f events/s%s\n", r.Projection, r.Position, r.Head, r.Rate(), leftOf(r),
	)
	return err
}

// comparedWith describes what a finished rebuild verified.
func comparedWith(r runner.RebuildProgress) string {
	if !r.Compared {
		return "not compared with the rows before"
	}
	return "as many rows as before"
}

// leftOf describes how much is left, and the position at which an interrupted rebuild continued.
func leftOf(r runner.RebuildProgress) (text string) {
	if r.LeftSeconds > 0 {
		text = ", " + time.Duration(r.LeftSeconds*float64(time.Second)).Round(time.Second).String() + " left"
	}
	if r.Resumed > 0 {
		text += fmt.Sprintf(" (continued at %d)", r.Resumed)
	}
	return text
}

// EmbeddingsCmd is "annals embeddings".
type EmbeddingsCmd struct {
	Install InstallEmbeddingsCmd `cmd:"" help:"Install the built-in embedding model in the data folder."`
	Status  EmbeddingsStatusCmd  `cmd:"" help:"Print how far the vectors of the embedding model are made."`
}

// InstallEmbeddingsCmd is "annals embeddings install".
type InstallEmbeddingsCmd struct {
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the service."`
	Source  string `arg:"" name:"file" help:"The jar with the model, as make model fetches it, or a folder with what is in it."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value."`
}

// Run installs the model. It changes nothing unless the files are the published ones.
func (c *InstallEmbeddingsCmd) Run(ctx context.Context, env *Env) error {
	dir := datafolder.Folder{Dir: c.DataDir}.Model()
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil { // as the service makes it
		return fmt.Errorf("make the data folder: %w", err)
	}
	if err := minilm.Install(ctx, c.Source, dir); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, map[string]string{"dir": dir})
	}
	_, err := fmt.Fprintf(env.Stdout, "installed in %s; the next start uses it, unless ANNALS_EMBEDDINGS is none\n", dir)
	return err
}

// EmbeddingsStatusCmd is "annals embeddings status".
type EmbeddingsStatusCmd struct {
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running service."`
	JSON    bool   `name:"json" help:"Print one JSON value."`
}

// Run asks the server that runs on the data folder.
func (c *EmbeddingsStatusCmd) Run(ctx context.Context, env *Env) error {
	p, err := operatorapi.EmbeddingProgress.Call(ctx, operatorapi.Dial(c.DataDir), operatorapi.None{})
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(env.Stdout, p)
	case p.Model == "":
		_, err = fmt.Fprintln(env.Stdout, "no embedding model: recall searches by words alone")
	default:
		_, err = fmt.Fprintf(env.Stdout, "%s has embedded %d of %d data points; recall uses %s\n",
			p.Model, p.Embedded, p.Captured, p.Live)
	}
	return err
}
