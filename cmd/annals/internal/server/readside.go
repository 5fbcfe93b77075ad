package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
	"github.com/annals-project/annals/projections/trace"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/projections/usage/limiter"
)

// readSide is the projections and the queries on their tables.
type readSide struct {
	runtime *runner.Runtime
	// waiter waits for projections on behalf of calls, background on behalf of background work.
	waiter, background *runner.Waiter
	access             access.Queries
	keys               auth.Keys
	// dataPoints serves calls. work serves background work.
	dataPoints, work datapoints.Queries
	// directory caches the rules of projects, so a process has one.
	directory *directory.Queries
	analyzers domainrecall.Analyzers
	backlog   *backlog
	// replica answers some reads of calls; nil for none.
	replica *replica.Reader
}

func newReadSide(
	ctx context.Context, cfg Config, st *storage, namespaces stream.Namespaces, models models,
	registry *prometheus.Registry,
) (*readSide, error) {
	r := &readSide{
		access:    access.Queries{DB: st.db, Namespaces: namespaces},
		analyzers: domainrecall.NewAnalyzers(), backlog: &backlog{},
	}
	has := cfg.Roles.parts()
	keys, changed := newKeys(cfg, r.access)
	r.keys = keys
	var err error
	runs := runner.Config{
		Remote: !has.projections,
		DB:     st.work, Calls: st.db, Store: st.store, Codec: st.codec, Logger: cfg.Logger,
		Hooks: projectionMetrics(registry, changed), LogID: runner.LogIDOf(st.store, st.codec),
		Projectors: projectors(cfg, st, namespaces, models, r.analyzers),
	}
	if has.writes {
		runs.Observer = r.backlog
	}
	if r.runtime, err = runner.New(runs); err != nil {
		return nil, err
	}
	r.waiter, r.background = r.runtime.Waiter(), r.runtime.BackgroundWaiter()
	r.dataPoints = datapoints.Queries{DB: st.db, Store: st.store, Wait: r.waiter}
	r.work = datapoints.Queries{DB: st.work, Store: st.store, Wait: r.background}
	r.directory = directory.NewQueries(st.db, st.store, r.waiter, r.dataPoints, limiter.PendingCharges{DB: st.db})
	r.replica, err = openReplica(ctx, cfg, st, r, runs.Projectors)
	return r, err
}

// openReplica opens the replica of Postgres, nil without one or if no role of the process reads there.
// The storage closes it.
func openReplica(
	ctx context.Context, cfg Config, st *storage, read *readSide, projectors []projections.Projector,
) (*replica.Reader, error) {
	if cfg.PostgresReplica == "" || !cfg.Roles.parts().reads {
		return nil, nil //nolint:nilnil // a nil reader reads nothing
	}
	versions := map[string]int{}
	for _, p := range projectors {
		versions[p.Name()] = p.Version()
	}
	opened, err := replica.Open(ctx, replica.Config{
		URL: cfg.PostgresReplica, Primary: st.db, Versions: versions, Request: read.waiter.Request, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("the replica that ANNALS_POSTGRES_REPLICA names cannot be used: %w", err)
	}
	st.replica = opened
	return opened, nil
}

// projectors returns the projectors of the service, in the order in which all of them are rebuilt.
func projectors(
	cfg Config, st *storage, namespaces stream.Namespaces, models models, analyzers domainrecall.Analyzers,
) []projections.Projector {
	journal := st.journal()
	list := []projections.Projector{
		access.New(), datapoints.New(journal), memories.New(journal, cfg.Logger),
		recallindex.New(st.index, journal, analyzers, cfg.Logger), usage.New(),
		directory.New(journal, namespaces, cfg.Logger),
		trace.NewProjector(journal),
	}
	if models.projected {
		list = append(list, embeddings.New())
	}
	return list
}

// isStopped reports whether a projection stopped, or has repeated one page for minutes. It returns
// false if that cannot be read.
func (r *readSide) isStopped(ctx context.Context, name string) bool {
	err := r.waiter.Stopped(ctx, name)
	_, stop := errors.AsType[*runner.Stop](err)
	_, repeat := errors.AsType[*runner.Repeat](err)
	return stop || repeat
}

// indexErr returns why the recall index applies no events, nil if it does.
func (r *readSide) indexErr(ctx context.Context) error {
	for _, s := range r.runtime.Health(ctx) {
		if s.Name != recallindex.Name {
			continue
		}
		if s.Stop != nil {
			return s.Stop
		}
		if s.LastErr == nil && s.Repeat != nil {
			return s.Repeat // the process that feeds the index reports it
		}
		return s.LastErr
	}
	return errors.New("the recall index is not fed by this process")
}
