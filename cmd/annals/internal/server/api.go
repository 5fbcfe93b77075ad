package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/ratelimit"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/usage/limiter"
	"github.com/annals-project/annals/projections/why"
	"github.com/annals-project/annals/readapi"
	"github.com/annals-project/annals/writeapi"
)

// buildAPI serves the API, and the operation routes on its address or on their own.
func buildAPI(_ context.Context, s *Server) (adds, error) {
	cfg, logger := s.cfg, s.cfg.Logger
	metrics, err := httpx.NewMetrics(s.registry)
	if err != nil {
		return adds{}, err
	}
	var calls httpx.CallLog
	if s.requests != nil {
		calls = s.requests
	}
	edge := httpx.Config{
		Calls: calls, Log: logger, Bodies: httpx.NewBodies(admission.Bodies), Answers: admission.Answers.New(),
		Metrics: metrics, Keys: s.read.keys, Admit: s.health.admission.admit,
		Writes: s.backpressure.admit, Limit: newRateLimits(cfg.RateLimit, cfg.PlanTerms, cfg.Clock).allow,
		Published: cfg.Audit.Public,
		Tokens:    s.tokenKeys(), URLs: s.urls, Proxies: cfg.Proxies, Now: cfg.Clock,
		Events: newEventAdmission(cfg, s.storage),
	}
	if s.reads != nil {
		edge.Reads = s.reads
	}
	e := s.router(edge, cfg.Roles)
	s.inner.Answers = edge.Answers
	if s.inner.API = e; cfg.Roles.Has(RoleConsole) && !(cfg.Roles.Has(RoleRead) && cfg.Roles.Has(RoleWrite)) {
		s.inner.API = s.router(edge, AllRoles())
	}
	ownOps := s.listeners.ops != nil
	operation := readapi.Operation{
		Conditions: s.health.conditions, Metrics: prometheus.GathererFunc(gatherOnce(s.registry.Gather)), Log: logger,
		Private: ownOps,
	}
	s.api, s.web = e, newWebServer(cfg, s.health.admission)
	a := adds{edge: []task{{"api", s.web.serve(s.listeners.api, e)}}}
	err = httpx.RegisterHome(e, homeOfAPI(cfg.Roles, ownOps))
	if !ownOps {
		readapi.RegisterOperation(e, operation)
		return a, err
	}
	readapi.RegisterHealth(e)
	ops := httpx.NewOperation(httpx.Config{Log: logger, URLs: s.urls})
	readapi.RegisterOperation(ops, operation)
	var private http.Handler = ops
	if cfg.Profile {
		private = profiler{logger, longestProfile}.withOperation(ops)
	}
	a.edge = append(a.edge, task{"ops", s.web.serve(s.listeners.ops, private)})
	return a, errors.Join(err, httpx.RegisterHome(ops, homeOfOperation()))
}

// router makes a router with the routes of some roles, which refuses the others.
func (s *Server) router(edge httpx.Config, roles Roles) *httpx.Router {
	e := httpx.New(edge)
	if roles.Has(RoleWrite) {
		writeapi.Register(e, s.writeRoutes())
	}
	if roles.Has(RoleRead) {
		readapi.Register(e, s.readRoutes())
	}
	httpx.RefuseRoutes(e, missingRole(roles))
	return e
}

// buildRequestLog makes what writes the request log.
func buildRequestLog(_ context.Context, s *Server) (adds, error) {
	if s.cfg.NoRequestLog {
		return adds{}, nil
	}
	s.requests = requestlog.NewWriter(s.storage.work, s.cfg.PlanTerms, s.cfg.Logger)
	return adds{watch: []task{{"request log", s.requests.Run}}}, s.requests.Register(s.registry)
}

// writeRoutes returns what the routes that change state need.
func (s *Server) writeRoutes() writeapi.Deps {
	service, directory := s.write.service, s.read.directory
	return writeapi.Deps{
		Ingest: service, Delete: service, Audiences: service, AudienceViews: readapi.AudienceViews{Queries: directory},
		Identities: service, LastSeen: directory, Projects: service, Events: service,
	}
}

// accounts is what organizations have and used.
func (s *Server) accounts() account.Queries {
	return account.Queries{
		DB: s.storage.db, Organizations: s.read.access, DataPoints: s.read.dataPoints,
		Charges: s.read.usage, PlanTerms: s.cfg.PlanTerms,
		Head: s.storage.store.Head, Waiter: s.read.waiter, Now: s.cfg.now, Replica: s.read.replica,
	}
}

// requestLog reads the request log.
func (s *Server) requestLog() *requestlog.Log {
	return &requestlog.Log{DB: s.storage.db, FailedSends: datapoints.FailedSendIDs}
}

// calls is the logged calls, with what became of them.
func (s *Server) calls() why.Calls {
	return why.Calls{Log: s.requestLog(), Sends: s.read.dataPoints, PlanTerms: s.cfg.PlanTerms}
}

// readRoutes returns what the routes that only read need.
func (s *Server) readRoutes() readapi.Deps {
	cfg, read, accounts := s.cfg, s.read, s.accounts()
	directory, statuses := read.directory.WithReplica(read.replica), read.dataPoints
	statuses.Replica = read.replica
	return readapi.Deps{
		Identities: directory, Audiences: directory, Statuses: statuses,
		Projects: accounts, Usage: accounts, Rooms: accounts,
		Recall:  recall.Charged{Meter: limiter.NewRecalls(read.limits, cfg.Logger), Recalls: s.recall},
		Explain: s.explain(), Requests: s.calls(), PlanTerms: cfg.PlanTerms, Trace: s.trace(),
		Audit: s.auditReads.routes(),
	}
}

// explain are the queries of sends and calls.
func (s *Server) explain() why.Explainer {
	return why.Explainer{
		Sends: s.read.dataPoints, Progress: s.read.waiter, Calls: s.requestLog(), Head: s.head(),
	}
}

// trace are the reads of nodes and of what happened around them.
func (s *Server) trace() *why.Trace {
	st, read := s.storage, s.read
	return why.NewTrace(why.TraceConfig{
		DB: st.db, Journal: st.journal(), Head: s.head(), Index: localSearch{s.index, st.index},
		Analyzers: read.analyzers, Recalls: loggedRecalls{s.requestLog()}, Logger: s.cfg.Logger, Now: s.cfg.now,
	})
}

// loggedRecalls are the recalls of the request log as a timeline shows them.
type loggedRecalls struct{ log *requestlog.Log }

// Hits reads the recalls that returned nodes, from a time to another, both inclusive.
func (l loggedRecalls) Hits(
	ctx context.Context, project uuid.UUID, nodes []uuid.UUID, from, to time.Time, limit int,
) ([]why.Recall, error) {
	hits, err := l.log.Hits(ctx, project, nodes, from, to.Add(time.Microsecond), limit)
	return recallsOf(hits), err
}

// Of reads the recalls that returned a data point, from a time to another, both inclusive.
func (l loggedRecalls) Of(
	ctx context.Context, project, dataPoint uuid.UUID, from, to time.Time, limit int,
) ([]why.Recall, error) {
	hits, err := l.log.Recalled(ctx, project, dataPoint, from, to.Add(time.Microsecond), limit)
	return recallsOf(hits), err
}

func recallsOf(hits []requestlog.Hit) []why.Recall {
	list := make([]why.Recall, len(hits))
	for i, h := range hits {
		list[i] = why.Recall{
			Request: h.RequestID, ReceivedAt: h.ReceivedAt.UTC(), Identity: h.Identity, Node: h.NodeID, Rank: h.Rank,
		}
	}
	return list
}

// missingRole refuses the routes of the roles that a process lacks. The 503 makes a client try
// again: a 404 would mean that the named thing does not exist.
func missingRole(roles Roles) func(auth.Route) error {
	return func(r auth.Route) error {
		missing := RoleRead
		switch {
		case r.Writes() && roles.Has(RoleWrite), !r.Writes() && roles.Has(RoleRead):
			return nil
		case r.Writes():
			missing = RoleWrite
		}
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"this process does not have the role %s: send the request to one that has it", missing).With("role", string(missing))
	}
}

// newKeys returns the keys of the process, and a function to call when a key changed. Only a
// process that alone writes the log caches keys: with several processes each call looks its key
// up, together with the calls that come at the same time.
func newKeys(cfg Config, queries access.Queries) (keys auth.Keys, changed func()) {
	if cfg.EventStore != Embedded {
		return auth.NewStrangers(newSharedKeys(queries, cfg.Logger), admission.Strangers.New()), func() {}
	}
	cache := auth.NewCache(auth.NewStrangers(queries, admission.Strangers.New()))
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

// keylessPerMinute is how many requests a network address without a key may send in any minute.
const keylessPerMinute = 600

// allow counts a request of a principal; see httpx.Config.Limit.
func (l *rateLimits) allow(p auth.Principal) (retry time.Duration, ok bool) {
	limit := l.terms[p.Limits.Plan].RequestsPerMinute
	switch {
	case p.Kind == "":
		limit = keylessPerMinute
	case l.every != nil:
		limit = *l.every
	}
	return l.windows.Allow(p.OrganizationID, limit)
}

// eventAdmission admits events of webhooks by the terms of the plan, and by how many came in this minute. It
// implements httpx.EventAdmission.
type eventAdmission struct {
	terms  metering.PlanTerms
	events *ratelimit.Shared
}

func newEventAdmission(cfg Config, st *storage) eventAdmission {
	return eventAdmission{cfg.PlanTerms, ratelimit.NewShared(st.db, limit.WebhookEvents, nil)}
}

// Includes reports whether the plan has webhooks.
func (a eventAdmission) Includes(p auth.Principal) bool { return a.terms.Of(p.Limits.Plan).Webhooks }

// Count counts an event. Its fault is service-unavailable.
func (a eventAdmission) Count(ctx context.Context, webhookID string) (retry time.Duration, ok bool, err error) {
	retry, ok, err = a.events.Allow(ctx, webhookID)
	if err != nil {
		unavailable := fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the event could not be counted; send it again")
		return 0, false, fmt.Errorf("%w: %w", unavailable, err)
	}
	return retry, ok, nil
}

// withWebhooks serves events of webhooks as the API does, and everything else by the console.
func withWebhooks(api, console http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, auth.Prefix+"/webhooks/") {
			api.ServeHTTP(w, r)
			return
		}
		console.ServeHTTP(w, r)
	})
}
