package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/eventstore/inspect"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/panics"
)

// part is a share of the service. A process builds the parts of its roles in the order of the list.
type part struct {
	name string
	// roles are those whose processes have the part, nil for every process.
	roles Roles
	// needs names the parts before it whose fields of the server it reads.
	needs []string
	// build makes the part and returns what it adds to the process. What later parts need of it becomes a field of the
	// server. It registers its metrics itself, and if it fails, it has stopped what it opened.
	build func(ctx context.Context, s *Server) (adds, error)
}

// adds is what a part adds to its process.
type adds struct {
	// edge, work, watch and base are its tasks, which run until their context ends. The edge stops first, then the work,
	// which begins once the service is ready, then what watches together with the base. A task of work or watch that
	// panics begins again; a panic in another one ends the process.
	edge, work, watch, base []task
	// steps come between the time at which the projections have caught up and that at which the service is ready.
	steps []step
	// operator are its routes on the operator socket.
	operator []operatorapi.Route
	// pages are what it serves on the console's address, by path; a path that ends in a slash has all below it.
	pages map[string]httpx.Page
	// stop ends it when all tasks have ended, the parts after it first. It may be nil.
	stop func() error
}

// parts returns the parts of the service, each after those that it needs.
func (s *Server) parts() []part {
	type needs = []string
	return slices.Concat([]part{
		{"storage", nil, nil, buildStorage},
		{"log", nil, needs{"storage"}, buildLog},
		{"probes", nil, needs{"storage"}, buildProbes},
		{"embeddings", nil, needs{"storage", "probes"}, buildEmbeddings},
		{"projections", nil, needs{"storage", "log", "embeddings"}, buildProjections},
		{"index", openIndexRoles, needs{"storage", "projections"}, buildIndex},
		{"backpressure", nil, needs{"storage", "projections"}, buildBackpressure},
		{"writes", Roles{RoleWrite, RoleConsole}, needs{"storage", "log", "projections"}, buildWrites},
		{"visits", Roles{RoleWrite, RoleConsole}, needs{"writes"}, buildVisits},
		{"signing keys", Roles{RoleWrite, RoleRead, RoleConsole}, needs{"storage"}, buildSigningKeys},
		{"pipeline", Roles{RolePipeline}, needs{"log", "probes", "embeddings", "index", "backpressure"}, buildPipeline},
		{"audit", Roles{RolePipeline}, needs{"log", "projections"}, buildAudit},
		{"administration", Roles{RoleWrite}, needs{"writes"}, buildAdministration},
		{"recall", Roles{RoleRead, RoleConsole}, needs{"embeddings", "projections", "index"}, buildRecall},
		{"read records", Roles{RoleWrite, RoleRead, RoleConsole}, needs{"log", "projections"}, buildReads},
		{"request log", Roles{RoleWrite, RoleRead, RoleConsole}, needs{"storage"}, buildRequestLog},
		{"inventory", nil, needs{"projections", "backpressure"}, buildInventory},
		{"health", nil, needs{"storage", "probes", "embeddings", "projections", "backpressure"}, buildHealth},
	}, s.cfg.parts, []part{
		{"api", nil, needs{"storage", "projections", "backpressure", "health"}, buildAPI},
		{"sign-in", Roles{RoleConsole}, needs{"writes"}, buildSignIn},
		{"seal keys", Roles{RoleWrite, RoleConsole}, needs{"writes"}, buildSealKeys},
		{"authorization server", Roles{RoleConsole}, needs{"writes", "signing keys", "sign-in"}, buildAuthServer},
		{"pages", Roles{RoleConsole}, needs{"authorization server", "writes", "visits", "recall", "read records", "request log", "sign-in", "api"}, buildPages},
		{"console", Roles{RoleConsole}, needs{"pages"}, buildConsole},
		{"start", nil, needs{"storage", "projections", "health"}, buildStart},
	})
}

// build builds those parts of a list that the roles of the process have.
func (s *Server) build(ctx context.Context, list []part) error {
	built := map[string]bool{}
	for _, p := range list {
		if !s.cfg.Roles.HasAny(p.roles) {
			continue
		}
		for _, need := range p.needs {
			if !built[need] {
				return fmt.Errorf("part %s needs part %s, which this process does not have before it", p.name, need)
			}
		}
		a, err := p.build(ctx, s)
		if err != nil {
			return err
		}
		s.added = append(s.added, a)
		built[p.name] = true
	}
	return nil
}

// all collects something of all parts.
func all[T any](parts []adds, of func(adds) []T) (list []T) {
	for _, a := range parts {
		list = append(list, of(a)...)
	}
	return list
}

func buildStorage(ctx context.Context, s *Server) (a adds, err error) {
	if s.storage, err = openStorage(ctx, s.cfg); err != nil {
		return adds{}, err
	}
	return adds{
		base: []task{{"postgres", s.storage.watchPostgres}}, stop: s.storage.close,
		operator: operatorapi.EventRoutes(inspect.Log{Store: s.storage.store}),
	}, nil
}

func buildLog(ctx context.Context, s *Server) (a adds, err error) {
	if s.journal, s.hashKey, err = openJournal(ctx, s.cfg, s.storage, s.urls); err != nil {
		return adds{}, err
	}
	if err := s.storage.claim(ctx, s.cfg); err != nil {
		return adds{}, err
	}
	return adds{}, s.cfg.Data.CheckSealKeys(ctx, s.storage.db)
}

// buildProbes makes what checks the servers that other parts call. It changes the configuration, so that their calls
// report how they end.
func buildProbes(_ context.Context, s *Server) (adds, error) {
	s.probes = &probes{}
	s.cfg = s.probes.observed(s.cfg)
	if err := s.probes.open(s.cfg, s.storage); err != nil {
		return adds{}, err
	}
	return adds{watch: s.probes.tasks()}, nil
}

// task is a part of the process that runs until its context ends.
type task struct {
	name string
	run  func(ctx context.Context) error
}

// restarting returns tasks whose panic does not end the process: each restarts after a pause.
func restarting(logger *slog.Logger, tier []task) []task {
	wrapped := make([]task, len(tier))
	for i, r := range tier {
		wrapped[i] = task{r.name, func(ctx context.Context) error {
			for pause := firstRestart; ; pause = min(2*pause, longestRestart) {
				err := panics.Call(ctx, logger, "task panicked, will restart", func() error { return r.run(ctx) }, "task", r.name)
				if _, panicked := errors.AsType[*panics.Error](err); !panicked {
					return err
				}
				if !sleep(ctx, pause) {
					return nil
				}
			}
		}}
	}
	return wrapped
}

// The first and the longest pause before a task that panicked restarts.
const (
	firstRestart   = time.Second
	longestRestart = time.Minute
)

// tierTimeout is how long a tier may take to stop. After it the next tier is stopped anyway. It is longer than a
// projection may take to finish its page and release its lease, 35 s.
const tierTimeout = 40 * time.Second

// runTiers starts all tiers together. It stops them in order, each after the one before it has
// returned, when the context or any task ends. The error joins those of the tasks that failed, and names those that
// did not stop in time. A panic of a task is its error.
func runTiers(ctx context.Context, logger *slog.Logger, tiers ...[]task) error {
	started := make([]*runningTier, len(tiers))
	ended := make(chan struct{}, len(tiers))
	for i, tier := range tiers {
		if len(tier) == 0 { // its end would stop the others
			tier = []task{{"none", func(ctx context.Context) error { <-ctx.Done(); return nil }}}
		}
		started[i] = startTier(ctx, logger, tier, ended)
	}
	select {
	case <-ctx.Done():
	case <-ended:
	}
	var errs []error
	for _, r := range started {
		errs = append(errs, r.end())
	}
	return errors.Join(errs...)
}

// runningTier is a tier that was started.
type runningTier struct {
	stop context.CancelFunc
	done chan error

	mu sync.Mutex
	// running are the names of the tasks that have not returned.
	running []string
}

// startTier starts the tasks of a tier, and sends to ended when all of them have returned. The end of one ends the
// others.
func startTier(ctx context.Context, logger *slog.Logger, tier []task, ended chan<- struct{}) *runningTier {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &runningTier{stop: stop, done: make(chan error, 1)}
	for _, t := range tier {
		r.running = append(r.running, t.name)
	}
	g, groupCtx := errgroup.WithContext(ctx)
	for _, t := range tier {
		g.Go(func() error {
			defer r.returned(t.name)
			err := panics.Call(groupCtx, logger, "task panicked", func() error { return t.run(groupCtx) }, "task", t.name)
			if groupCtx.Err() == nil && err == nil {
				err = errors.New("ended unexpectedly")
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			return nil
		})
	}
	go func() {
		r.done <- g.Wait()
		ended <- struct{}{}
	}()
	return r
}

// returned notes that a task has returned.
func (r *runningTier) returned(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.running, name)
	r.running = slices.Delete(r.running, i, i+1)
}

// end stops the tier, and returns the errors of its tasks.
func (r *runningTier) end() error {
	r.stop()
	timer := time.NewTimer(tierTimeout)
	defer timer.Stop()
	select {
	case err := <-r.done:
		return err
	case <-timer.C:
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Errorf("tasks did not stop within %s: %s", tierTimeout, strings.Join(r.running, ", "))
	}
}
