package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/commands"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/operator"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections"
)

// RebuildCmd is "annals rebuild".
type RebuildCmd struct {
	Settings
	Projection string `arg:"" help:"Projection to build anew from the log, or all."`
	JSON       bool   `name:"json" help:"Print one JSON value a line while it goes on."`
}

// rebuildsAtOnce is how many projections are rebuilt at once if no server runs: one waits for
// Postgres while another reads and folds.
const rebuildsAtOnce = 2

// rebuilder is the projections of a running server, or of this process.
type rebuilder interface {
	Projections(ctx context.Context) ([]string, error)
	Rebuild(ctx context.Context, projection string, report func(operator.Rebuild)) error
}

// Run rebuilds through the server that runs on the data folder. Where none runs, it opens what a server would and rebuilds by itself.
func (c *RebuildCmd) Run(ctx context.Context, env *Env) (err error) {
	server := operator.Dial(c.DataDir)
	var by rebuilder = server
	atOnce := 1 // a running server needs the other processor for its calls
	if !server.Running(ctx) {
		alone, done, err := c.alone(ctx, env)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, done()) }()
		by, atOnce = alone, rebuildsAtOnce
	}
	names, err := by.Projections(ctx)
	if err != nil {
		return err
	}
	if c.Projection != allProjections {
		if !slices.Contains(names, c.Projection) {
			return fmt.Errorf("there is no projection %s: want all, or one of %v", c.Projection, names)
		}
		names = []string{c.Projection}
	}
	show := &rebuildView{to: env.Stdout, json: c.JSON, last: map[string]time.Time{}}
	log := slog.New(slog.NewJSONHandler(env.Stderr, nil))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, name := range names {
		group.Go(func() (err error) {
			defer panics.Recover(ctx, log, &err, "rebuild panicked", "projection", name)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return by.Rebuild(ctx, name, show.report)
		})
	}
	return errors.Join(group.Wait(), show.err)
}

// alone opens the parts of a server without serving. The data folder is locked meanwhile.
func (c *RebuildCmd) alone(ctx context.Context, env *Env) (_ rebuilder, done func() error, err error) {
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	level, err := c.Level()
	if err != nil {
		return nil, nil, err
	}
	log := slog.New(slog.NewJSONHandler(env.Stderr, &slog.HandlerOptions{Level: max(level, slog.LevelWarn)}))
	startCtx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	st, err := openStorage(startCtx, &c.Settings, log)
	if err != nil {
		return nil, nil, err
	}
	events := commands.NewLog(st.store, st.codec, log)
	if err := useHashKey(startCtx, events, &c.Settings); err != nil {
		return nil, nil, errors.Join(err, st.close())
	}
	runtime, err := projections.New(projections.Config{
		DB: st.work, Store: st.store, Codec: st.codec, LogID: projections.LogIDOf(st.store, st.codec), Logger: log,
		Projectors: append(projectors(st, events.Namespaces, domainrecall.NewAnalyzer(), log), c.embeddingProjectors()...),
	})
	if err != nil {
		return nil, nil, errors.Join(err, st.close())
	}
	return localProjections{operatorProjections{runtime: runtime, log: events}}, st.close, nil
}

// localProjections are the projections of this process, as a rebuilder.
type localProjections struct{ operatorProjections }

func (l localProjections) Projections(context.Context) ([]string, error) { return l.Names(), nil }

// rebuildView prints the progress of each rebuild, at most twice a second.
type rebuildView struct {
	to   io.Writer
	json bool

	mu   sync.Mutex
	last map[string]time.Time // by projection
	err  error
}

func (v *rebuildView) report(r operator.Rebuild) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !r.Done && time.Since(v.last[r.Projection]) < 500*time.Millisecond || v.err != nil {
		return
	}
	v.last[r.Projection] = time.Now()
	switch {
	case v.json:
		v.err = json.NewEncoder(v.to).Encode(r)
	case r.Done:
		_, v.err = fmt.Fprintf(v.to, "%s: rebuilt, %d events in %.1f s (%.0f events/s)\n", r.Projection, r.Events, r.Seconds, r.Rate())
	default:
		_, v.err = fmt.Fprintf(v.to, "%s: position %d of %d, %.0f events/s\n", r.Projection, r.Position, r.Head, r.Rate())
	}
}
