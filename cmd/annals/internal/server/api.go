package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/build"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/ratelimit"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/projections/calls"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/explain"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/runner"
	"github.com/annals-project/annals/projections/trace"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/projections/usage/limiter"
	"github.com/annals-project/annals/readapi"
	"github.com/annals-project/annals/writeapi"
)

// handlers are what the addresses serve. ops is nil if the API serves the operation routes.
type handlers struct{ api, console, ops http.Handler }

// apiParts is what the handlers need. What the roles of the process do not need is nil.
type apiParts struct {
	cfg          Config
	urls         auth.URLs
	storage      *storage
	read         *readSide
	write        *writeSide
	index        *localIndex
	recall       localRecall
	backpressure *backpressure
	semantic     semantic
	opening      *opening
	health       *health
	background   *background
	// requests writes the request log; nil without the roles that serve calls.
	requests *requestlog.Writer
	registry *prometheus.Registry
	probes   *probes
	failures *sendFailures
	// inventory counts what is stored.
	inventory *inventory
	// ownOps is true if the operation routes have a separate address.
	ownOps bool
}

// newHandlers registers the routes and the metrics.
func newHandlers(p apiParts) (handlers, error) {
	cfg, logger := p.cfg, p.cfg.Logger
	p.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&stateMetrics{p.health.reading, p.read.runtime, p.storage, p.backpressure, p.background, cfg.Roles.parts()},
	)
	build.Get().Register(p.registry)
	p.semantic.register(p.registry)
	p.health.register(p.registry)
	p.backpressure.register(p.registry)
	p.registry.MustRegister(p.probes, p.inventory)
	if cfg.Roles.parts().pipeline {
		p.registry.MustRegister(p.failures.count)
	}
	if p.read.replica != nil {
		p.registry.MustRegister(p.read.replica)
	}
	metrics, err := httpx.NewMetrics(p.registry)
	if err != nil {
		return handlers{}, err
	}
	var calls httpx.CallLog
	if p.requests != nil {
		if err := p.requests.Register(p.registry); err != nil {
			return handlers{}, err
		}
		calls = p.requests
	}
	e := httpx.New(httpx.Config{
		Calls: calls, Log: logger,
		Metrics: metrics, Keys: failClosedKeys{p.read.keys, p.read.waiter}, Admit: p.opening.admit,
		Writes: p.backpressure.admit, Limit: newRateLimits(cfg.RateLimit, cfg.PlanTerms, cfg.Clock).allow,
		URLs: p.urls, Now: cfg.Clock, Events: newEventAdmission(cfg, p.storage),
	})
	has := cfg.Roles.parts()
	if has.writes {
		writeapi.Register(e, p.writeRoutes())
	}
	if has.reads {
		readapi.Register(e, p.readRoutes())
	}
	httpx.RefuseRoutes(e, missingRole(has))
	console := httpx.NewConsole(httpx.Config{Log: logger, URLs: p.urls})
	h := handlers{api: e, console: withWebhooks(e, console)}
	operation := readapi.Operation{
		Ready: p.health.notReady, Remarks: func() readapi.Remarks { return p.health.remarks(p.ownOps) },
		Metrics: prometheus.GathererFunc(gatherOnce(p.registry.Gather)), Log: logger, Private: p.ownOps,
	}
	if !p.ownOps {
		readapi.RegisterOperation(e, operation)
		return h, errors.Join(httpx.RegisterHome(e, p.homeOfAPI()), httpx.RegisterHome(console.Echo, p.homeOfConsole()))
	}
	readapi.RegisterHealth(e)
	ops := httpx.NewOperation(httpx.Config{Log: logger, URLs: p.urls})
	readapi.RegisterOperation(ops, operation)
	h.ops = ops
	return h, errors.Join(
		httpx.RegisterHome(e, p.homeOfAPI()), httpx.RegisterHome(console.Echo, p.homeOfConsole()),
		httpx.RegisterHome(ops, homeOfOperation()),
	)
}

// writeRoutes returns what the routes that change state need.
func (p apiParts) writeRoutes() writeapi.Deps {
	service, directory := p.write.service, p.read.directory
	return writeapi.Deps{
		Ingest: service, Delete: service, Audiences: service, AudienceViews: readapi.AudienceViews{Queries: directory},
		Identities: service, LastSeen: directory, Projects: service, Events: service,
	}
}

// readRoutes returns what the routes that only read need.
func (p apiParts) readRoutes() readapi.Deps {
	cfg, st, read := p.cfg, p.storage, p.read
	accounts := account.Queries{
		Organizations: read.access, DataPoints: read.dataPoints,
		Charges: usage.Queries{DB: st.db, PlanTerms: cfg.PlanTerms}, PlanTerms: cfg.PlanTerms,
		Head: st.store.Head, Waiter: read.waiter, Now: cfg.now, Replica: read.replica,
	}
	limits := limiter.New(st.db, cfg.PlanTerms, read.waiter, cfg.Logger)
	directory, statuses := read.directory.WithReplica(read.replica), read.dataPoints
	statuses.Replica = read.replica
	requests := &requestlog.Log{DB: st.db, FailedSends: datapoints.FailedSendIDs}
	return readapi.Deps{
		Identities: directory, Audiences: directory, Statuses: statuses,
		Projects: accounts, Usage: accounts, Rooms: accounts,
		Recall:   recall.Charged{Meter: limiter.NewRecalls(limits, cfg.Logger), Recalls: p.recall},
		Explain:  explain.Queries{Sends: read.dataPoints, Progress: read.waiter, Calls: requests},
		Requests: calls.Queries{Log: requests, Sends: read.dataPoints, PlanTerms: cfg.PlanTerms}, PlanTerms: cfg.PlanTerms,
		Trace: trace.New(trace.Config{
			DB: st.db, Journal: st.journal(), Wait: read.waiter, Index: localSearch{p.index, st.index},
			Analyzers: read.analyzers, Recalls: loggedRecalls{requests}, Logger: cfg.Logger, Now: cfg.now,
		}),
	}
}

// loggedRecalls are the recalls of the request log as a timeline shows them.
type loggedRecalls struct{ log *requestlog.Log }

// Hits reads the recalls that returned nodes, from a time to another, both inclusive.
func (l loggedRecalls) Hits(
	ctx context.Context, project uuid.UUID, nodes []uuid.UUID, from, to time.Time, limit int,
) ([]trace.Recall, error) {
	hits, err := l.log.Hits(ctx, project, nodes, from, to.Add(time.Microsecond), limit)
	if err != nil {
		return nil, err
	}
	list := make([]trace.Recall, len(hits))
	for i, h := range hits {
		list[i] = trace.Recall{
			Request: h.RequestID, ReceivedAt: h.ReceivedAt.UTC(), Identity: h.Identity, Node: h.NodeID, Rank: h.Rank,
		}
	}
	return list, nil
}

// missingRole refuses the routes of the roles that a process lacks. The 503 makes a client try
// again: a 404 would mean that the named thing does not exist.
func missingRole(has parts) func(auth.Route) error {
	return func(r auth.Route) error {
		missing := RoleRead
		switch {
		case r.Writes() && has.writes, !r.Writes() && has.reads:
			return nil
		case r.Writes():
			missing = RoleWrite
		}
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"this process does not have the role %s: send the request to one that has it", missing).With("role", string(missing))
	}
}

// failClosedKeys refuses to look up keys while the projection access is stopped, because a key
// could have been revoked since.
type failClosedKeys struct {
	auth.Keys
	waiter *runner.Waiter
}

// KeyByHash implements auth.Keys.
func (k failClosedKeys) KeyByHash(ctx context.Context, kind auth.Kind, hash [32]byte) (auth.Holder, bool, error) {
	if err := k.check(ctx); err != nil {
		return auth.Holder{}, false, err
	}
	return k.Keys.KeyByHash(ctx, kind, hash)
}

// ProjectNamed implements auth.Keys.
func (k failClosedKeys) ProjectNamed(
	ctx context.Context, organizationID uuid.UUID, slug string,
) (auth.Named, bool, error) {
	if err := k.check(ctx); err != nil {
		return auth.Named{}, false, err
	}
	return k.Keys.ProjectNamed(ctx, organizationID, slug)
}

func (k failClosedKeys) check(ctx context.Context) error {
	if err := k.waiter.Stopped(ctx, access.Name); err != nil {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "keys cannot be checked; /readyz shows why")
	}
	return nil
}

// newKeys returns the keys of the process, and a function to call when a key changed. Only a
// process that alone writes the log caches keys: with several processes each call looks its key
// up.
func newKeys(cfg Config, queries access.Queries) (keys auth.Keys, changed func()) {
	bounded := auth.NewStrangers(queries, admission.Strangers.New())
	if cfg.EventStore != Embedded {
		return bounded, func() {}
	}
	cache := auth.NewCache(bounded)
	return cache, cache.Forget
}

// rateLimits bounds the requests of an organization in any minute, over all its keys.
type rateLimits struct {
	windows *ratelimit.Windows
	terms   metering.PlanTerms
	// every replaces the limits of the plans. nil keeps them.
	every *int
}

func newRateLimits(every *int, terms metering.PlanTerms, clock func() time.Time) *rateLimits {
	return &rateLimits{windows: ratelimit.New(time.Minute, clock), terms: terms, every: every}
}

// allow counts a request of a principal; see httpx.Config.Limit.
func (l *rateLimits) allow(p auth.Principal) (retry time.Duration, ok bool) {
	limit := l.terms[p.Limits.Plan].RequestsPerMinute
	if l.every != nil {
		limit = *l.every
	}
	return l.windows.Allow(p.OrganizationID, limit)
}
