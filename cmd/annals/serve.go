package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/commands/pipeline/model"
	"github.com/annals-project/annals/domain/metering"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/operator"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/readapi"
	"github.com/annals-project/annals/writeapi"
)

// gcPercent lets the heap grow to three times what lives in it between collections: most of what is allocated is gone with
// its request or its page, and the part that lives is small. GOGC in the environment wins.
const gcPercent = 200

// memoryLimit is the heap size from which the collector works harder than gcPercent asks, so that the garbage of a few big
// answers does not fill the machine. What lives may exceed it. GOMEMLIMIT in the environment wins.
const memoryLimit = 640 << 20

// startLimit is how long the parts may take to open, a first initialisation of the database included.
const startLimit = 3 * time.Minute

// Run is "annals serve": it opens the parts, serves until the context ends, and closes them in order.
func (c *ServeCmd) Run(ctx context.Context, env *Env) (err error) {
	if err := noCoreDumps(); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	level, err := c.Level()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(env.Stderr, &slog.HandlerOptions{Level: level}))
	if env.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if env.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	listening, err := listenAll(ctx, &c.Settings)
	if err != nil {
		return err
	}
	startCtx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	st, err := openStorage(startCtx, &c.Settings, log)
	if err != nil {
		return errors.Join(err, listening.close())
	}
	defer func() { err = errors.Join(err, st.close()) }()
	p, err := newProcess(startCtx, &c.Settings, st, listening, log, env.Now)
	if err != nil {
		return errors.Join(err, listening.close())
	}
	p.ready = func() {
		_, _ = fmt.Fprintf(env.Stdout, "annals is ready: API on %s, credentials in %s\n", p.urls.API, filepath.Join(c.DataDir, CredentialsFile))
	}
	return p.run(ctx)
}

// process is the parts of a running service and what holds them together.
type process struct {
	settings  *Settings
	log       *slog.Logger
	st        *storage
	urls      PublicURLs
	listening listeners
	door      *door
	api, ops  http.Handler
	// connections bounds those of every address.
	connections *httpx.Connections
	// causes are those of the parts that were not ready when it was last asked.
	causes    atomic.Pointer[string]
	runtime   *projections.Runtime
	waiter    *projections.Waiter
	worker    *pipeline.Worker
	confirmer *pipeline.Confirmer
	finisher  *pipeline.Finisher
	// prepare ends the preparation of every organization; tendVault brings the sealed keys to what holds now.
	prepare      func(context.Context) error
	prepareEvery time.Duration
	tendVault    func(context.Context) error
	embedding    embedding
	tariff       metering.Tariff
	recalls      *usage.Recalls
	metering     *commands.Metering
	directory    *directory.Queries
	sends        operator.Sends
	access       access.Queries
	keys         auth.Keys
	pressure     *pressure

	operatorProjections operatorProjections
	backups             operator.Backups
	organizations       organizations
	// indexGrace is how long the start waits for the index, which all but recall does without.
	indexGrace time.Duration
	// started is closed once the projections have caught up and nothing that a commit set off stands open.
	started chan struct{}
	// ready is called once, when the service is.
	ready func()
	// clock is what time requests and commands count in.
	clock func() time.Time
	index *index
}

// newProcess makes the parts. A nil clock is that of the machine.
func newProcess(ctx context.Context, s *Settings, st *storage, listening listeners, log *slog.Logger, clock func() time.Time) (*process, error) {
	p := &process{
		settings: s, log: log, st: st, listening: listening, urls: s.PublicURLs(listening.api.Addr().String(), listening.console.Addr().String()),
		door: &door{}, connections: httpx.NewConnections(httpx.ConnectionLimit()), indexGrace: indexGrace, started: make(chan struct{}), clock: clock,
	}
	if clock == nil {
		p.clock = time.Now
	}
	events := commands.NewLog(st.store, st.codec, log)
	key, err := hashKeyOf(ctx, events, s)
	if err != nil {
		return nil, err
	}
	if err := openLog(ctx, events, s, p.urls, key); err != nil {
		return nil, err
	}
	events.Namespaces = stream.NewNamespaces(key)
	p.access = access.Queries{DB: st.db, Namespaces: events.Namespaces}
	registry := prometheus.NewRegistry()
	blobs := blobReader{st.store, st.codec}
	analyzer := domainrecall.NewAnalyzer()
	hooks := projectionMetrics(registry)
	p.keys = keysOf(s, p.access, &hooks)
	backlog := &backlog{}
	p.runtime, err = projections.New(projections.Config{
		Observer: backlog,
		DB:       st.work, Calls: st.db, Store: st.store, Codec: st.codec, Logger: log, Hooks: hooks,
		LogID:      projections.LogIDOf(st.store, st.codec),
		Projectors: append(projectors(st, events.Namespaces, analyzer, log), s.embeddingProjectors()...),
	})
	if err != nil {
		return nil, err
	}
	p.waiter = p.runtime.Waiter()
	p.index = &index{runtime: p.runtime, sole: s.EventStore == Embedded}
	p.operatorProjections = operatorProjections{runtime: p.runtime, log: events, now: p.now}
	p.pressure = &pressure{
		minFree: uint64(s.MinFreeDisk) << 20, free: diskFree(s.DataDir), stopped: st.logStopped, head: st.store.Head, behind: eventsBehind(st.store),
		health: neededByWrites(p.runtime.Health), index: indexAtWork(p.runtime.Health), now: time.Now, log: log,
		backlog: backlog, owners: p.access.Owners,
	}
	queries := datapoints.Queries{DB: st.db, Log: st.store, Wait: p.waiter}
	inside := p.runtime.Inside()
	lists := datapoints.Queries{DB: st.work, Log: st.store, Wait: inside}
	p.pressure.model, p.pressure.clock = s.ModelURL != "", p.now
	if s.PipelineOn() {
		p.pressure.waits = lists
	}
	foreground := &commands.Foreground{}
	p.worker = &pipeline.Worker{
		Foreground: foreground, Age: p.pressure.age, Log: events, Queue: roomyQueue{lists, p.pressure}, Progress: inside,
		Extractor: pipeline.Builtin{}, Logger: log, Holder: uuid.NewString(), Now: p.now,
	}
	if s.ModelURL != "" {
		if p.worker.Extractor, err = model.NewExtractor(s.model()); err != nil {
			return nil, err
		}
		p.worker.Slow = true
	}
	p.confirmer = &pipeline.Confirmer{
		Log: events, Sends: lists, Progress: inside, IndexTrouble: p.indexTrouble, Logger: log, Now: p.now,
	}
	if p.embedding, err = p.newEmbedding(ctx, events); err != nil {
		return nil, err
	}
	p.directory = newDirectory(st, p.waiter, queries)
	p.finisher = p.newFinisher(events, lists)
	p.operatorProjections.stuck = p.finisher.Stuck

	if p.tariff, err = s.tariff(); err != nil {
		return nil, err
	}
	meters, charges := p.newMeters(p.tariff), usage.Queries{DB: st.db, Tariff: p.tariff}
	p.recalls = usage.NewRecalls(meters, log)
	p.metering = &commands.Metering{
		Log: events, Counted: usage.Queries{DB: st.work, Tariff: p.tariff}, Waiter: inside, Logger: log, Now: p.now,
	}
	vault, sealing, err := openVault(s, st.db)
	if err != nil {
		return nil, err
	}
	write := commands.New(commands.Config{
		Log: events, Waiter: p.waiter, Sends: queries, DataPoints: queries, Records: p.directory, Directory: p.directory, SoleWriter: s.EventStore == Embedded, HashKey: key, Pipeline: s.PipelineOn(), Foreground: foreground, Limits: meters,
		Tariff: p.tariff, Accounts: charges, Vault: vault, Preparing: p.access,
	})
	p.organizations = organizations{commands: write, dataDir: s.DataDir, now: p.now}
	p.prepareEvery = prepareEvery
	p.prepare = func(ctx context.Context) error {
		return write.PrepareOrganizations(ctx, operatorCall("preparation", p.now()))
	}
	p.tendVault = func(ctx context.Context) error {
		return tendVault(ctx, vault, p.access, s.DataDir, log)
	}
	p.backups = backups{node: st.node, dataDir: s.DataDir, hashKey: key, sealKeys: sealing, flush: p.countedInLog}
	p.sends = operatorSends{queries: queries, access: p.access, commands: write, now: p.now}
	return p, p.routes(registry, queries, write, blobs, analyzer)
}

// projectors are the projections of the service, in the order in which all of them are rebuilt.
func projectors(st *storage, namespaces stream.Namespaces, analyzer *domainrecall.Analyzer, log *slog.Logger) []projections.Projector {
	return []projections.Projector{
		access.New(), datapoints.New(blobReader{st.store, st.codec}), memories.New(blobReader{st.store, st.codec}, log),
		recallindex.New(st.index, recallindex.Log{Store: st.store, Codec: st.codec}, analyzer, log), usage.New(),
		directory.New(blobReader{st.store, st.codec}, namespaces, log),
	}
}

// routes builds the API in front of the parts.
func (p *process) routes(registry *prometheus.Registry, queries datapoints.Queries, write *commands.Service, blobs blobReader,
	analyzer *domainrecall.Analyzer,
) error {
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&partMetrics{p}, workMetrics{p},
	)
	p.embedding.metrics(registry)
	metrics, err := httpx.NewMetrics(registry)
	if err != nil {
		return err
	}
	accounts := accounts{usage.Queries{DB: p.st.db, Tariff: p.tariff}, p.access, queries, p.st.store.Head, p.waiter, p.now}
	e := httpx.New(httpx.Config{
		Log: p.log, Metrics: metrics, Keys: liveKeys{p.keys, p.waiter}, Gate: p.door.gate, Writes: p.pressure.refuse,
		Limit: newRateLimits(p.settings, p.tariff, p.clock).allow,
		URLs:  p.urls.auth(), Now: p.clock,
	})
	writeapi.Register(e, writeapi.Deps{Ingest: write, Delete: write, Audiences: write, AudienceViews: audienceViews{p.directory}, Identities: write, Sight: p.directory, Projects: write})
	readapi.Register(e, readapi.Deps{
		Identities: p.directory, Audiences: p.directory,
		Statuses: sendStatuses{queries}, Projects: accounts, Usage: accounts, Meter: p.recalls,
		Recall: ownIndex{p.index, recall.New(recall.Config{DB: p.st.db, Index: p.st.index, Analyzer: analyzer, Viewers: p.directory, Blobs: blobs, Projections: p.waiter, Log: p.log, Meaning: p.embedding.meaning(), Now: p.clock})},
	})
	if p.listening.ops == nil {
		readapi.RegisterOperation(e, p.operation(registry))
	} else {
		readapi.RegisterHealth(e)
		ops := httpx.NewOperation(httpx.Config{Log: p.log, URLs: p.urls.auth()})
		readapi.RegisterOperation(ops, p.operation(registry))
		p.ops = ops
	}
	p.api = e
	return nil
}

// run serves until the context ends or a part fails.
func (p *process) run(ctx context.Context) error {
	socket, err := operator.Listen(ctx, p.settings.DataDir, p.log)
	if err != nil {
		return errors.Join(err, p.listening.close())
	}
	edge := []role{
		{"api", p.serveHTTP(p.listening.api, p.api)},
		{"console", p.serveHTTP(p.listening.console, p.consoleEdge())},
		{"operator socket", serveOperator(socket, operator.Handler(p.sends, p.log, operator.EventRoutes(p.st.store), operator.ProjectionRoutes(p.operatorProjections), operator.EraseRoutes(operatorErasures{p.finisher}), operator.BackupRoutes(p.backups), operator.OrganizationRoutes(p.organizations)))},
		{"start", p.start},
	}
	if p.ops != nil {
		edge = append(edge, role{"ops", p.serveHTTP(p.listening.ops, p.ops)})
	}
	core := []role{{"confirmer", p.afterStart(p.confirmer.Run)}, {"finisher", p.afterStart(p.finisher.Run)}, {"metering", p.afterStart(p.metering.Run)}, {"preparation", p.afterStart(p.keepPreparing)}}
	if p.settings.PipelineOn() {
		core = append(core, role{"pipeline", p.afterStart(p.derive)})
	}
	core = append(core, p.embedding.roles(p)...)
	// What the others rest on ends the process with its panic; what only watches runs again.
	base := append(restarting(p.log, []role{{"index", p.watchIndex}, {"refill", p.keepIndexWhole}, {"pressure", p.pressure.run}}),
		role{"projections", p.runtime.Run}, role{"postgres", p.watchPostgres})
	return runTiers(ctx, p.log, edge, restarting(p.log, core), base)
}

// start opens the door once the projections are where the log was at the start, and nothing that a commit set off stands open.
func (p *process) start(ctx context.Context) error {
	head, err := p.st.store.Head(ctx)
	if err != nil {
		return err
	}
	for _, name := range append(slices.Clone(writesNeed), memories.Name) {
		for p.waiter.Wait(ctx, head, name) != nil {
			// Who calls, what stands and what is left cannot be told without these: the door stays shut, and /readyz says why. Where one
			// of the others stopped, the reads that rest on it are refused, and the rest goes on.
			if !slices.Contains(writesNeed, name) && p.stopped(ctx, name) {
				break
			}
			if !sleep(ctx, time.Second) {
				return nil
			}
		}
	}
	p.awaitIndex(ctx)
	if ctx.Err() != nil {
		return nil
	}
	for {
		err := p.finisher.CatchUp(ctx)
		if err == nil {
			break
		}
		p.log.WarnContext(ctx, "a deletion stands open, and is completed before calls are taken", "err", err)
		if !sleep(ctx, time.Second) {
			return nil
		}
	}
	for {
		err := errors.Join(p.prepare(ctx), p.tendVault(ctx))
		if err == nil {
			break
		}
		p.log.WarnContext(ctx, "an organization or the vault is not prepared yet, and is before calls are taken", "err", err)
		if !sleep(ctx, time.Second) {
			return nil
		}
	}
	close(p.started)
	p.door.open.Store(true)
	p.ready()
	<-ctx.Done()
	return nil
}

// watchPostgres fails where the private Postgres ends by itself: nothing of the service works without it, and a start puts it right.
func (p *process) watchPostgres(ctx context.Context) error {
	if p.st.postgres == nil {
		<-ctx.Done()
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-p.st.postgres.Exited():
		return errors.New("the private Postgres ended by itself; its last words are in the log above")
	}
}

// afterStart holds a role back until the projections are where the log was at the start: its lists mean nothing before.
func (p *process) afterStart(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-p.started:
			return run(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// sleep waits, and reports false where the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
