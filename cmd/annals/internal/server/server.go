// Package server is the service: it opens the storage, runs the projections, the pipeline and the
// background work, and serves the API, the operator routes and the operator socket.
//
// Start reading at Server.parts, the list of what it consists of, and at Server.Run, which runs the parts in tiers.
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
	"github.com/annals-project/annals/commands/reads"
	"github.com/annals-project/annals/console/agents"
	"github.com/annals-project/annals/console/authserver"
	"github.com/annals-project/annals/console/mcp"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/mail"
	"github.com/annals-project/annals/internal/peersocket"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/tokens"
	"github.com/annals-project/annals/internal/visits"
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
	load *commands.LoadGauge
	// added is what the parts add, in their order.
	added []adds
	// The fields below are of the part that sets them. What the roles of the process leave out stays zero.
	storage      *storage
	journal      *commands.Journal
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
		registry: prometheus.NewRegistry(), load: &commands.LoadGauge{},
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
