package server

import (
	"context"
	"errors"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/pipeline"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/runner"
)

// Rebuilder is the projections of a service that does not run. It locks the data folder until
// Close.
type Rebuilder struct {
	projections operatorapi.Projections
	st          *storage
}

// OpenRebuilder opens what a service would open, without listening and serving.
func OpenRebuilder(ctx context.Context, cfg Config) (*Rebuilder, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	st, err := openStorage(ctx, cfg)
	if err != nil {
		return nil, err
	}
	events := commands.NewJournal(st.store, st.codec, cfg.Logger)
	if err := cfg.Data.UseHashKey(ctx, events); err != nil {
		return nil, errors.Join(err, st.close())
	}
	models, err := newModels(ctx, cfg, st)
	if err != nil {
		return nil, errors.Join(err, st.close())
	}
	runtime, err := runner.New(runner.Config{
		DB: st.work, Store: st.store, Codec: st.codec, LogID: runner.LogIDOf(st.store, st.codec), Logger: cfg.Logger,
		Projectors: projectors(cfg, st, events.Namespaces, models.projected, domainrecall.NewAnalyzers()),
	})
	if err != nil {
		return nil, errors.Join(err, st.close())
	}
	none := func() []pipeline.Stuck { return nil } // no finisher runs
	return &Rebuilder{operatorapi.Projections{Runtime: runtime, Journal: events, Stuck: none}, st}, nil
}

// Projections returns the names of the projections, in the order in which all of them are rebuilt.
func (r *Rebuilder) Projections(context.Context) ([]string, error) {
	return r.projections.Runtime.Names(), nil
}

// RebuildAll builds projections from the log in shadows, at the same time, and switches over to them.
func (r *Rebuilder) RebuildAll(
	ctx context.Context, names []string, options runner.RebuildOptions, report func(operatorapi.RebuildProgress),
) error {
	return r.projections.RebuildAll(ctx, names, options, report)
}

// Close closes the storage.
func (r *Rebuilder) Close() error { return r.st.close() }
