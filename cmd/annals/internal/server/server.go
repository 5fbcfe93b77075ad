// Package server is the service: it opens the storage, runs the projections, the pipeline and the
// background work, and serves the API, the operator routes and the operator socket.
//
// Start reading at New, which makes the parts, and at Server.Run, which runs them in tiers.
package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/eventstore/inspect"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/peersocket"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/export"
	"github.com/annals-project/annals/projections/recall"
)

// openTimeout bounds New, including a first initialisation of the database.
const openTimeout = 3 * time.Minute

// Server is a service.
type Server struct {
	cfg          Config
	storage      *storage
	listeners    listeners
	urls         auth.URLs
	journal      *commands.Journal
	read         *readSide
	index        *localIndex
	backpressure *backpressure
	background   *background
	semantic     semantic
	probes       *probes
	inventory    *inventory
	startup      *startup
	health       *health
	backups      datafolder.Backup // zero without the roles that it needs
	web          *web
	requests     *requestlog.Writer // nil if no calls are logged
	registry     *prometheus.Registry
	handlers     handlers
	operator     http.Handler
}

// New listens on the addresses, opens the storage and makes the parts, within openTimeout. The
// caller must call Close after Run, or instead of it.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.BulkItems == 0 {
		cfg.BulkItems = DefaultBulkItems
	}
	if cfg.BulkBytes == 0 {
		cfg.BulkBytes = DefaultBulkBytes
	}
	if cfg.Ready == nil {
		cfg.Ready = func(auth.URLs) {}
	}
	lines := newLogLines()
	cfg.Logger = slog.New(countingHandler{cfg.Logger.Handler(), lines})
	l, err := listenAll(ctx, cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	st, err := openStorage(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	s, err := newServer(ctx, cfg, st, l)
	if err == nil {
		err = s.registry.Register(lines)
	}
	if err != nil {
		return nil, errors.Join(err, l.close(), st.close())
	}
	return s, nil
}

// newServer makes the parts. Each gets what it needs from those before it.
func newServer(ctx context.Context, cfg Config, st *storage, l listeners) (*Server, error) {
	consoleAddr := cfg.ConsoleAddr
	if l.console != nil {
		consoleAddr = l.console.Addr().String()
	}
	urls := cfg.publicURLs(l.api.Addr().String(), consoleAddr)
	journal, hashKey, err := openJournal(ctx, cfg, st, urls)
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	probes := &probes{}
	cfg = probes.observed(cfg)
	if err := probes.open(cfg, st); err != nil {
		return nil, err
	}
	models, err := newModels(ctx, cfg, st)
	if err != nil {
		return nil, err
	}
	read, err := newReadSide(ctx, cfg, st, journal.Namespaces, models, registry)
	if err != nil {
		return nil, err
	}
	journal.Pace = commands.NewBatchPace(read.background, cfg.Logger, time.Now)
	index := newLocalIndex(cfg, st, read)
	pressure := newBackpressure(sourcesOf(cfg, st, read))
	semantic, err := newSemantic(ctx, cfg, st, models)
	if err != nil {
		return nil, err
	}
	load := &commands.LoadGauge{}
	var write *writeSide
	if cfg.Roles.parts().writes {
		if write, err = newWriteSide(cfg, st, journal, read, load, hashKey); err != nil {
			return nil, err
		}
	}
	failures := newSendFailures(probes.settingsOfFailure, cfg.Logger)
	work, err := newBackground(backgroundParts{
		cfg, st, journal, read, write, index, pressure, models, semantic, load, failures,
	})
	if err != nil {
		return nil, err
	}
	opening, progress := &opening{}, &startProgress{now: time.Now}
	health := newHealth(cfg, st, read, index, pressure, semantic, probes, work.stuck, opening, progress)
	recaller := newLocalRecall(cfg, st, read, index, semantic)
	var requests *requestlog.Writer
	if has := cfg.Roles.parts(); (has.writes || has.reads) && !cfg.NoRequestLog {
		requests = requestlog.NewWriter(st.work, cfg.PlanTerms, cfg.Logger)
	}
	inventory := newInventory(cfg, st, pressure)
	handlers, err := newHandlers(apiParts{
		cfg: cfg, urls: urls, storage: st, read: read, write: write, index: index, backpressure: pressure,
		recall: recaller, semantic: semantic, opening: opening, health: health, background: work,
		requests: requests, registry: registry, probes: probes, failures: failures, inventory: inventory,
		ownOps: l.ops != nil,
	})
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, requests: requests, storage: st, listeners: l, urls: urls, journal: journal, read: read, index: index,
		backpressure: pressure, background: work, semantic: semantic, probes: probes, inventory: inventory, health: health,
		web: newWeb(cfg, opening), registry: registry, handlers: handlers,
		startup: newStartup(cfg, st, read, write, index, work, opening, progress, func() { cfg.Ready(urls) }),
	}
	if has := cfg.Roles.parts(); has.writes && has.pipeline {
		s.backups = datafolder.Backup{
			Node: st.node, Dir: cfg.Data.Dir, HashKey: hashKey, SealKeys: write.sealKeys, Flush: work.flushRecalls,
		}
	}
	s.operator = s.operatorHandler(write, recaller)
	return s, nil
}

// operatorHandler serves the operator socket.
func (s *Server) operatorHandler(write *writeSide, recaller localRecall) http.Handler {
	now, has := s.cfg.now, s.cfg.Roles.parts()
	head := projections.Head{Log: s.storage.store, Waiter: s.read.waiter}
	routes := operatorapi.EventRoutes(inspect.Log{Store: s.storage.store})
	if has.writes {
		people := peopleOf(s.cfg, s.storage, s.read, s.journal)
		if f := s.background.finisher; f != nil {
			people = f.People
		}
		tenancy := access.Tenancy{Queries: s.read.access, Head: head}
		webhooks := access.Webhooks{Tenancy: tenancy, Vault: write.vault, URLs: s.urls}
		sends := datapoints.StoppedSends{Queries: s.read.dataPoints, Projects: s.read.access}
		routes = slices.Concat(
			routes, operatorapi.SendRoutes(sends, write.service, now), operatorapi.OrganizationRoutes(write.service, now),
			operatorapi.TenancyRoutes(write.service, tenancy, now), operatorapi.PeopleRoutes(people, tenancy),
			operatorapi.WebhookRoutes(
				commands.Webhooks{Service: write.service, Finder: webhooks, URLs: s.urls}, webhooks, now),
		)
	}
	routes = append(routes, operatorapi.ExportRoute(export.Service{
		Reader:   export.Reader{DB: s.storage.db, Blobs: s.storage.journal()},
		Projects: s.read.access, Head: head, Now: now,
	}))
	if has.reads {
		routes = append(routes, operatorapi.ExplainRoute(recall.Explainer{
			Access: s.read.access, Recall: recaller, Plans: s.cfg.PlanTerms,
		}))
	}
	routes = append(routes, operatorapi.EmbeddingRoute(embeddings.Queries{DB: s.storage.db}, s.semantic.model()))
	if has.projections {
		asides := commands.EventAsides{
			Journal: s.journal, Projections: s.read.runtime, IsStuck: s.background.isStuckAt,
		}
		routes = append(routes, operatorapi.ProjectionRoutes(s.read.runtime, asides, now)...)
	}
	if has.pipeline {
		routes = append(routes, operatorapi.EraseRoutes(s.background.finisher)...)
	}
	if has.writes && has.pipeline {
		routes = append(routes, operatorapi.BackupRoute(s.backups))
	}
	if roles := s.cfg.Roles; len(roles) > 0 {
		routes = append(routes, operatorapi.Otherwise("this process has only the roles "+roles.String()+
			": run the command on the data folder of a process with the role that it needs"))
	}
	return operatorapi.Handler(s.cfg.Logger, routes...)
}

// Run serves until the context ends or a part fails.
func (s *Server) Run(ctx context.Context) error {
	logger := s.cfg.Logger
	ctx, end := s.delayStop(ctx)
	defer end()
	socket, err := peersocket.Listen(ctx, operatorapi.Socket(s.cfg.Data.Dir), logger)
	if err != nil {
		return errors.Join(err, s.listeners.close())
	}
	edge := []task{
		{"api", s.web.serve(s.listeners.api, s.handlers.api)},
		{"operator socket", func(ctx context.Context) error { return peersocket.Serve(ctx, socket, s.operator) }},
		{"start", s.startup.run},
	}
	if s.listeners.console != nil {
		edge = append(edge, task{"console", s.web.serve(s.listeners.console, s.handlers.console)})
	}
	if s.listeners.ops != nil {
		edge = append(edge, task{"ops", s.web.serve(s.listeners.ops, s.handlers.ops)})
	}
	var core []task
	for _, r := range s.background.tasks() {
		core = append(core, task{r.name, s.startup.after(r.run)})
	}
	if live := s.semantic.live; live != nil {
		core = append(core, task{"embedding model", s.startup.after(live.follow)})
		if s.cfg.Roles.parts().projections {
			core = append(core, task{"stored vectors", s.startup.after(s.semantic.tend)})
		}
	}
	// A panic in a task that the others need ends the process. A task that only watches restarts.
	watchers := s.watchers()
	watchers = append(watchers, s.probes.tasks()...)
	watchers = append(watchers, task{"inventory", s.inventory.run})
	if s.requests != nil {
		watchers = append(watchers, task{"request log", s.requests.Run})
	}
	base := restarting(logger, watchers)
	base = append(base, task{"projections", s.read.runtime.Run}, task{"postgres", s.storage.watchPostgres})
	return runTiers(ctx, logger, edge, restarting(logger, core), base)
}

// delayStop returns a context that ends StopDelay after another one. Meanwhile /readyz answers 503, and calls are
// served. A service that is not ready stops at once: nobody sends it calls.
func (s *Server) delayStop(ctx context.Context) (later context.Context, end context.CancelFunc) {
	later, end = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		if s.cfg.StopDelay > 0 && s.web.admission.open.Load() && later.Err() == nil {
			s.web.admission.draining.Store(true)
			s.cfg.Logger.InfoContext(later, "service stops after a delay; a second signal ends it at once",
				"delay", s.cfg.StopDelay.String())
			sleep(later, s.cfg.StopDelay)
		}
		end()
	})
	return later, end
}

// watchers returns the tasks that only watch.
func (s *Server) watchers() []task {
	var list []task
	has := s.cfg.Roles.parts()
	if has.projections {
		list = append(list, task{"index", s.index.watch}, task{"refill", s.index.refill})
	}
	if has.backpressure {
		list = append(list, task{"pressure", s.backpressure.run})
	}
	if s.read.replica != nil {
		list = append(list, task{"postgres replica", s.read.replica.Run})
	}
	return list
}

// Close closes the storage. It must come after Run.
func (s *Server) Close() error { return s.storage.close() }

// sleep waits. It returns false if the context ends first.
func sleep(ctx context.Context, d time.Duration) bool { return backoff.Pause(ctx, d, nil) == nil }
