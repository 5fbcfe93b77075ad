// Package server is the service: it opens the storage, runs the projections, the pipeline and the
// background work, and serves the API, the operator routes and the operator socket.
//
// Start reading at Server.parts, the list of what it consists of, and at Server.Run, which runs the parts in tiers.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/reads"
	"github.com/annals-project/annals/console/agents"
	"github.com/annals-project/annals/console/authserver"
	"github.com/annals-project/annals/console/mcp"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/mail"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/peersocket"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/tokens"
	"github.com/annals-project/annals/internal/visits"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
)

// openTimeout bounds New, including a first initialisation of the database.
const openTimeout = 3 * time.Minute

// Server is a service.
type Server struct {
	cfg       Config
	listeners listeners
	urls      auth.URLs
	registry  *prometheus.Registry
	// load shows the pipeline how many callers wait.
	load *engine.LoadGauge
	// added is what the parts add, in their order.
	added []adds
	// The fields below are of the part that sets them. What the roles of the process leave out stays zero.
	storage      *storage
	journal      *engine.Journal
	hashKey      []byte
	probes       *probes
	semantic     semantic
	read         *readSide
	index        *localIndex
	backpressure *backpressure
	background   *background
	audit        *auditLog // nil without the role pipeline
	auditReads   *auditReads
	write        *writeSide
	visits       visits.Queue
	operatorLog  *operatorLog
	backups      datafolder.Backup
	recall       localRecall
	requests     *requestlog.Writer // nil if no calls are logged
	reads        *reads.Recorder    // nil in a process that shows no texts
	inventory    *inventory
	health       *health
	tokens       *tokens.Keys
	signin       *signin.Service
	authServer   *authserver.Service
	agents       *agents.Service
	site         *web.Site
	tools        *mcp.Service
	api          http.Handler
	inner        httpx.Inner // what the console calls: every route, whatever the roles
	web          *webServer
	startup      *startup
}

// New listens on the addresses, opens the storage and builds the parts, within openTimeout. The
// caller must call Close after Run, or instead of it.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.SignIn.Mail == nil {
		cfg.SignIn.Mail = mail.Server{}
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
	consoleAddr := cfg.ConsoleAddr
	if l.console != nil {
		consoleAddr = l.console.Addr().String()
	}
	s := &Server{
		cfg: cfg, listeners: l, urls: cfg.publicURLs(l.api.Addr().String(), consoleAddr),
		registry: prometheus.NewRegistry(), load: &engine.LoadGauge{},
	}
	s.registry.MustRegister(lines)
	if err := s.build(ctx, s.parts()); err != nil {
		return nil, errors.Join(err, l.close(), s.Close())
	}
	return s, nil
}

// operator serves the operator socket.
func (s *Server) operator() http.Handler {
	routes := all(s.added, func(a adds) []operatorapi.Route { return a.operator })
	if roles := s.cfg.Roles; len(roles) > 0 {
		routes = append(routes, operatorapi.Otherwise("this process has only the roles "+roles.String()+
			": run the command on the data folder of a process with the role that it needs"))
	}
	served := s.recordReads(operatorapi.Handler(s.cfg.Logger, routes...))
	if s.cfg.RequireReason {
		return operatorapi.RequireReason(s.cfg.Logger, served)
	}
	return served
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
	operator := s.operator()
	edge := append(all(s.added, func(a adds) []task { return a.edge }), task{
		"operator socket", func(ctx context.Context) error { return peersocket.Serve(ctx, socket, operator) },
	})
	work := all(s.added, func(a adds) []task { return a.work })
	for i, t := range work {
		work[i].run = s.startup.after(t.run)
	}
	watch := all(s.added, func(a adds) []task { return a.watch })
	base := append(restarting(logger, watch), all(s.added, func(a adds) []task { return a.base })...)
	return runTiers(ctx, logger, edge, restarting(logger, work), base)
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

// Close ends the parts, the last one first. It must come after Run.
func (s *Server) Close() error {
	var errs []error
	for _, a := range slices.Backward(s.added) {
		if a.stop != nil {
			errs = append(errs, a.stop())
		}
	}
	return errors.Join(errs...)
}

// sleep waits. It returns false if the context ends first.
func sleep(ctx context.Context, d time.Duration) bool { return backoff.Pause(ctx, d, nil) == nil }

const (
	startRetry = time.Second
	// startReport is how often a start that waits for projections logs that it does.
	startReport = time.Minute
)

// startup admits requests once the projections have reached the head of the log at the start, and
// what the roles of the process need is done: interrupted fan-outs are complete, organizations and
// vault are prepared.
type startup struct {
	storage *storage
	read    *readSide
	// index is nil if this process does not answer recall.
	index *localIndex
	// projections are those that must have reached the head.
	projections []string
	// steps come then, in order, each repeated until it succeeds.
	steps     []step
	progress  *startProgress
	admission *opening
	ready     func()
	logger    *slog.Logger
	// done is closed when the service is ready.
	done chan struct{}
}

func buildStart(_ context.Context, s *Server) (adds, error) {
	up := &startup{
		storage: s.storage, read: s.read, steps: all(s.added, func(a adds) []step { return a.steps }),
		progress: s.health.progress, admission: s.health.admission, ready: func() { s.cfg.Ready(s.urls) },
		logger: s.cfg.Logger, done: make(chan struct{}),
	}
	if s.cfg.Roles.HasAny(Roles{RoleWrite, RoleRead, RoleProjector, RolePipeline}) {
		up.projections = append(slices.Clone(neededByWrites), memories.Name)
	}
	if s.cfg.Roles.Has(RoleRead) {
		up.index = s.index
	}
	s.startup = up
	return adds{edge: []task{{"start", up.run}}}, nil
}

// step is a step of a start.
type step struct {
	name string
	do   func(context.Context) error
}

// run starts the service and waits for the end of the context.
func (s *startup) run(ctx context.Context) error {
	head, err := s.head(ctx)
	if err != nil {
		return err
	}
	s.progress.begin(head)
	panics.Go(ctx, s.logger, "report of the start panicked", func() { s.reportProgress(ctx) })
	for _, name := range s.projections {
		if !s.catchUp(ctx, head, name) {
			return nil
		}
	}
	if s.index != nil {
		s.index.await(ctx)
	}
	if ctx.Err() != nil {
		return nil
	}
	for _, next := range s.steps {
		if !s.retry(ctx, next) {
			return nil
		}
	}
	if s.storage.wentBack() != nil {
		<-ctx.Done()
		return nil
	}
	close(s.done)
	s.admission.open.Store(true)
	s.ready()
	<-ctx.Done()
	return nil
}

// head reads the end of the log. It waits for the end of the context if the log went back: /readyz then names
// the cause, which a process that starts again and again could not.
func (s *startup) head(ctx context.Context) (eventstore.Position, error) {
	for {
		head, err := s.storage.store.Head(ctx)
		switch {
		case err == nil:
			return head, nil
		case s.storage.wentBack() != nil:
			<-ctx.Done()
			return 0, nil
		case !errors.Is(err, eventstore.ErrUnavailable) || ctx.Err() != nil:
			return 0, err
		}
		s.logger.WarnContext(ctx, "startup: end of the log not read, will retry", "err", err)
		if !sleep(ctx, startRetry) {
			return 0, nil
		}
	}
}

// catchUp waits until a projection has reached a position. It returns false if the context ends
// first. Requests stay refused while a projection that writes need is missing. If one of the
// others is stopped, only its reads are refused, so the start continues.
func (s *startup) catchUp(ctx context.Context, head eventstore.Position, name string) bool {
	report := time.Now().Add(startReport)
	for {
		err := s.read.waiter.Wait(ctx, head, name)
		needed := slices.Contains(neededByWrites, name)
		if err == nil && s.storage.wentBack() == nil && !(needed && s.read.isStopped(ctx, name)) {
			return true
		}
		if !needed && s.read.isStopped(ctx, name) {
			return true
		}
		if time.Now().After(report) {
			s.logger.WarnContext(ctx, "startup: projection has not caught up, still waiting", "projection", name, "err", err)
			report = time.Now().Add(startReport)
		}
		if !sleep(ctx, startRetry) {
			return false
		}
	}
}

// retry repeats a step of the start until it succeeds. It returns false if the context ends first.
func (s *startup) retry(ctx context.Context, next step) bool {
	for {
		err := next.do(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil { // the stop is the cause
			return false
		}
		s.logger.WarnContext(ctx, "startup: step failed, will retry", "step", next.name, "err", err)
		if !sleep(ctx, startRetry) {
			return false
		}
	}
}

// after delays a task until the service is ready, because its work lists are incomplete before.
func (s *startup) after(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-s.done:
			return run(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// progressEvery is how often a start that reads the log logs how far it is.
const progressEvery = 10 * time.Second

// startProgress is how far the projections have read the log at a start, as after a restore.
type startProgress struct {
	now func() time.Time

	mu sync.Mutex
	// goal is the head of the log at the start, 0 while it is not known.
	goal  eventstore.Position
	first map[string]seenAt // by projection
	done  bool
}

// seenAt is a position of a projection at the time when it was first seen.
type seenAt struct {
	position eventstore.Position
	at       time.Time
}

// begin sets the goal.
func (s *startProgress) begin(goal eventstore.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.goal, s.first = goal, map[string]seenAt{}
}

// catchingUp is the projection that is furthest from the goal.
type catchingUp struct {
	projection     string
	position, goal eventstore.Position
	// rate is in positions a second, left the time that is left at that rate. Both are 0 until they are known.
	rate float64
	left time.Duration
}

// String describes it in one line.
func (c catchingUp) String() string {
	text := fmt.Sprintf("the projection %s has read %.0f %% of the log (position %d of %d)",
		c.projection, 100*float64(c.position)/float64(c.goal), c.position, c.goal)
	if c.rate > 0 {
		text += fmt.Sprintf(", %.0f positions/s, %s left", c.rate, c.left.Round(time.Second))
	}
	return text
}

// of returns the projection that is furthest from the goal, false once all are there, and while that is not known: a
// process trusts its leases for a moment after Postgres is lost. It considers those that a start waits for, and the
// recall index of this process.
func (s *startProgress) of(now reading) (c catchingUp, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, unread := now.projections, func(p runner.Status) bool { return p.IsUnread }
	if s.goal == 0 || s.done || now.postgres != nil || slices.ContainsFunc(list, unread) {
		return catchingUp{}, false
	}
	counted := append(slices.Clone(neededByWrites), memories.Name, recallindex.Name)
	for _, p := range list {
		if !slices.Contains(counted, p.Name) || p.Stop != nil || p.Position >= s.goal || ok && p.Position >= c.position {
			continue
		}
		c, ok = catchingUp{projection: p.Name, position: p.Position, goal: s.goal}, true
	}
	if !ok {
		s.done = len(list) > 0
		return catchingUp{}, false
	}
	first, seen := s.first[c.projection]
	if !seen || c.position < first.position { // one that begins again has another pace
		s.first[c.projection] = seenAt{c.position, s.now()}
		return c, true
	}
	took := s.now().Sub(first.at).Seconds()
	if moved := c.position - first.position; moved > 0 && took > 0 {
		c.rate = float64(moved) / took
		c.left = time.Duration(float64(c.goal-c.position) / c.rate * float64(time.Second))
	}
	return c, true
}

// isDone reports whether there is nothing to read, or nothing left.
func (s *startProgress) isDone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done || s.goal == 0
}

// reportProgress logs how far the start is, until the context ends or all is read.
func (s *startup) reportProgress(ctx context.Context) {
	for sleep(ctx, progressEvery) {
		c, ok := s.progress.of(reading{projections: s.read.runtime.Health(ctx)})
		if s.progress.isDone() {
			return
		}
		if !ok {
			continue
		}
		s.logger.InfoContext(ctx, "start: projections read the log", "projection", c.projection,
			"position", uint64(c.position), "head", uint64(c.goal), "positions_per_second", int64(c.rate), "left", c.left.Round(time.Second).String())
	}
}
