package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/build"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
	"github.com/annals-project/annals/projections/usage/limiter"
)

// checkTimeout bounds one check of a part.
const checkTimeout = 2 * time.Second

// maxNamed bounds the deletions that /readyz names one by one.
const maxNamed = 8

// health reports what is not ready, and what else an operator should know.
type health struct {
	reading      *memo[reading]
	runtime      *runner.Runtime
	storage      *storage
	index        *localIndex // nil if no role needs the index
	backpressure *backpressure
	semantic     semantic
	probes       *probes
	stuck        func() []pipeline.Stuck
	denied       func() *erasure.DeniedError
	audit        func() condition.List
	roles        Roles
	admission    *opening
	progress     *startProgress
	logger       *slog.Logger
	calls, work  usedUp
	watch        condition.Watch
}

func buildHealth(_ context.Context, s *Server) (adds, error) {
	s.health = &health{
		reading: newReading(s.storage, s.read.runtime, s.cfg), runtime: s.read.runtime, storage: s.storage, index: s.index,
		backpressure: s.backpressure, semantic: s.semantic, probes: s.probes, stuck: s.stuck, denied: s.denied,
		audit:     func() condition.List { return s.audit.conditions() },
		roles:     s.cfg.Roles,
		admission: &opening{wentBack: s.storage.wentBack}, progress: &startProgress{now: time.Now}, logger: s.cfg.Logger,
	}
	s.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &stateMetrics{s},
	)
	build.Get().Register(s.registry)
	return adds{operator: []operatorapi.Route{operatorapi.StatusRoute(s.status)}}, nil
}

// The parts. The first two are servers that every role needs.
const (
	postgresPart   = "postgres"
	eventStorePart = "event store"
	projectionPart = "projection"
	deletionPart   = "deletion"
)

// The reasons that /readyz shows to every client. They are constant: texts of errors, servers and customers are
// in the cause only.
const (
	silent        condition.Reason = "it does not answer"
	refuses       condition.Reason = "it refuses what the service needs"
	refusesUser   condition.Reason = "it refuses the user or the password: check ANNALS_EVENTSTORE and the user's rights"
	storeStopped  condition.Reason = "writes are refused until the service is restarted"
	olderCopy     condition.Reason = "the log is an older copy: restore the newer one, or accept the older one and rebuild"
	keysAway      condition.Reason = "keys cannot be looked up: every call is refused"
	poolUsedUp    condition.Reason = "every connection for calls is in use"
	workUsedUp    condition.Reason = "every connection for background work is in use"
	notDeleted    condition.Reason = "it is committed and cannot be completed: what it deletes is still served"
	stopped       condition.Reason = "stopped"
	stoppedAt     condition.Reason = "stopped at an event that it cannot apply"
	repeatsPage   condition.Reason = "repeats a page"
	cannotBegin   condition.Reason = "cannot begin"
	lastTryFailed condition.Reason = "its last try failed"
	fedElsewhere  condition.Reason = "another process feeds its index, and an embedded index serves one process only: " +
		"stop the other"

	awaitPostgres   condition.Reason = "they wait for postgres"
	awaitEventStore condition.Reason = "they wait for the event store"
)

// conditions returns what an operator should know, causes before their effects, and logs what is not ready. Whether the
// service starts or stops is read at each call: the answer must change at once.
func (h *health) conditions(ctx context.Context) condition.List {
	now, opening := h.reading.get(), h.admission.reason()
	list := h.serversNotReady(now)
	if h.roles.Has(RoleProjector) { // other processes report their own
		list = append(list, withoutEffects(list, h.projectionsNotReady(now))...)
	}
	list = append(list, deletionsNotReady(h.stuck())...)
	if opening != "" {
		list = append(list, notReady("service", opening, 0, nil))
	}
	list = append(list, h.remarks(now, opening != "")...)
	h.log(ctx, list)
	return list
}

// serversNotReady returns which of Postgres and the event store cannot be used.
func (h *health) serversNotReady(now reading) (parts condition.List) {
	add := func(part string, reason condition.Reason, cause error) {
		parts = append(parts, notReady(part, reason, 0, cause))
	}
	at := h.reading.now()
	full, workFull := h.calls.check(h.storage.db.Stat(), at), h.work.check(h.storage.work.Stat(), at)
	switch {
	case now.postgres != nil:
		add(postgresPart, reasonOf(now.postgres), now.postgres)
	case now.keys != nil:
		add(postgresPart, keysAway, now.keys)
	case full:
		add(postgresPart, poolUsedUp, nil)
	case workFull:
		add(postgresPart, workUsedUp, nil)
	}
	if reason, cause := h.storage.logTrouble(now.eventStore); reason != "" {
		add(eventStorePart, reason, cause)
	}
	return parts
}

// holdsUp is what the projections wait for while a server is not ready for a reason, "" if they can work.
func holdsUp(server condition.Condition) condition.Reason {
	switch server.Words {
	case silent, refusesUser, olderCopy:
	default:
		return ""
	}
	if server.Name == postgresPart {
		return awaitPostgres
	}
	return awaitEventStore
}

// withoutEffects puts one part in the place of the projections that only wait for a server that is not ready. A
// projection that stopped has a cause of its own.
func withoutEffects(servers, projections condition.List) condition.List {
	for _, server := range servers {
		why := holdsUp(server)
		if why == "" {
			continue
		}
		own := slices.DeleteFunc(slices.Clone(projections), func(c condition.Condition) bool {
			return c.Words != stopped && c.Words != stoppedAt
		})
		if len(own) == len(projections) {
			return projections
		}
		return append(condition.List{notReady("projections", why, 0, nil)}, own...)
	}
	return projections
}

// reasonOf is why Postgres cannot be used.
func reasonOf(err error) condition.Reason {
	if _, answers := errors.AsType[*ops.Problem](err); answers {
		return refuses
	}
	return silent
}

// projectionsNotReady returns the projections that cannot work.
func (h *health) projectionsNotReady(now reading) (parts condition.List) {
	for _, s := range now.projections {
		add := func(reason condition.Reason, at eventstore.Position, cause error) {
			c := notReady(projectionPart, reason, at, cause)
			c.Of = s.Name
			parts = append(parts, c)
		}
		switch {
		case s.Stop != nil && s.Stop.Stream != "":
			add(stoppedAt, s.Stop.Position, s.Stop)
		case s.Stop != nil:
			add(stopped, 0, s.Stop)
		case s.Repeat != nil && s.Repeat.Next == 0:
			add(cannotBegin, 0, s.Repeat)
		case s.Repeat != nil:
			add(repeatsPage, s.Repeat.Next, s.Repeat)
		case s.LastErr != nil:
			add(lastTryFailed, 0, s.LastErr)
		case s.Name == recallindex.Name && !s.Active && h.index.ownsIndex && h.admission.open.Load():
			add(fedElsewhere, 0, nil)
		}
	}
	return parts
}

// deletionsNotReady names deletions that cannot be completed, at most maxNamed. The last one counts for the rest.
func deletionsNotReady(stuck []pipeline.Stuck) (parts condition.List) {
	for _, s := range stuck[:min(len(stuck), maxNamed)] {
		c := notReady(deletionPart, notDeleted, s.Position, fmt.Errorf("one of %d: %w", len(stuck), s.Err))
		c.Of = s.ID.String()
		parts = append(parts, c)
	}
	if rest := len(stuck) - len(parts); rest > 0 {
		parts[maxNamed-1].Count = 1 + rest
	}
	return parts
}

func notReady(part string, reason condition.Reason, at eventstore.Position, cause error) condition.Condition {
	c := condition.Condition{Name: part, State: condition.NotReady, Words: reason, Position: uint64(at)}
	if cause != nil {
		c.Cause = pg.Plain(cause)
	}
	return c
}

// log logs each part that is not ready when that begins, or its cause changes, and when it ends.
func (h *health) log(ctx context.Context, list condition.List) {
	began, ended := h.watch.Note(h.reading.now().UTC().Truncate(time.Millisecond), list)
	for _, c := range began {
		if c.Cause != "" {
			h.logger.WarnContext(ctx, "service is not ready", "part", c.Part(), "reason", c.Words, "err", c.Cause)
		}
	}
	for _, c := range ended {
		if c.Cause != "" {
			h.logger.InfoContext(ctx, "a part is ready again", "part", c.Part(), "since", c.Since)
		}
	}
}

// projections returns how far each projection is.
func (h *health) projections() []condition.Projection {
	now := h.reading.get()
	problems := map[string]condition.Reason{}
	for _, c := range h.projectionsNotReady(now) {
		problems[c.Of] = c.Words
	}
	list := make([]condition.Projection, len(now.projections))
	for i, s := range now.projections {
		list[i] = condition.Projection{
			Name: s.Name, Version: s.Version, Position: uint64(s.Position), Lag: uint64(s.Lag()), IsFedHere: s.Active,
			IsStopped: s.Stop != nil, Problem: problems[s.Name],
		}
	}
	return list
}

// reading is what the operation routes ask of the servers. The rest of what they show is in memory.
type reading struct {
	eventStore, postgres error
	// keys is why no key can be looked up, nil also for a process that looks none up.
	keys error
	// awaitedLock is the table for which statements wait, "" for none.
	awaitedLock string
	projections []runner.Status
	// abandonedBulks counts bulk writes of identities; charged is the age of the oldest counted recalls, nil if
	// it cannot be read.
	abandonedBulks int
	charged        *time.Duration
	failedSends    datapoints.RecentFailures
	// damaged are the first damaged streams, at most maxDamaged.
	damaged []datapoints.DamagedStream
	// erasing is when the oldest deletion that is not erased was accepted, zero if there is none.
	erasing time.Time
}

// failedLately is how long a failed send is shown as one that failed lately.
const failedLately = time.Hour

// newReading returns the reading that all operation routes share.
func newReading(st *storage, runtime *runner.Runtime, cfg Config) *memo[reading] {
	logger := cfg.Logger
	return newMemo(func(ctx context.Context) (r reading) {
		_, r.eventStore = st.store.Head(ctx)
		r.postgres = ops.Check(ctx, st.checks)
		r.projections = runtime.HealthOn(ctx, st.checks)
		var err error
		if r.abandonedBulks, err = directory.AbandonedBulks(ctx, st.checks); err != nil {
			// This is usual before the first start of the projection, and so below.
			logger.DebugContext(ctx, "abandoned bulk writes cannot be counted", "err", err)
		}
		r.failedSends, err = datapoints.Queries{DB: st.checks}.RecentFailures(ctx, cfg.now().Add(-failedLately))
		if err != nil {
			logger.DebugContext(ctx, "failed sends cannot be counted", "err", err)
		}
		if r.damaged, err = (datapoints.Queries{DB: st.checks}).DamagedStreams(ctx, 0, maxDamaged); err != nil {
			logger.DebugContext(ctx, "damaged streams cannot be listed", "err", err)
		}
		if r.erasing, err = (datapoints.Queries{DB: st.checks}).OldestErasure(ctx); err != nil {
			logger.DebugContext(ctx, "deletions that are not erased cannot be read", "err", err)
		}
		if r.awaitedLock, err = ops.AwaitedLock(ctx, st.checks); err != nil {
			logger.DebugContext(ctx, "awaited locks cannot be read", "err", err)
		}
		if roles := cfg.Roles; roles.Has(RoleWrite) || roles.Has(RoleRead) || roles.Has(RoleConsole) {
			// Nobody's: what its look-up reads is what that of each key reads.
			_, _, r.keys = access.Queries{DB: st.checks}.KeyByHash(ctx, auth.ProjectKey, [32]byte{})
		}
		age, _, err := limiter.PendingCharges{DB: st.checks}.Oldest(ctx)
		if err != nil {
			logger.DebugContext(ctx, "age of counted recalls cannot be read", "err", err)
			return r
		}
		r.charged = &age
		return r
	})
}

// usedUp notices that every connection of a pool has been in use, by the same users, for checkTimeout.
type usedUp struct {
	last atomic.Pointer[fullPool]
}

// fullPool is a pool without a free connection: since when, and how many had been acquired then.
type fullPool struct {
	since    time.Time
	acquired int64
}

func (u *usedUp) check(pool *pgxpool.Stat, now time.Time) bool {
	if pool.AcquiredConns() < pool.MaxConns() {
		u.last.Store(nil)
		return false
	}
	before := u.last.Load()
	if before == nil || before.acquired != pool.AcquireCount() {
		u.last.Store(&fullPool{since: now, acquired: pool.AcquireCount()})
		return false
	}
	return now.Sub(before.since) >= checkTimeout
}

// memoTime is how long the operation routes answer from one reading, however many callers there are.
const memoTime = time.Second

// memo keeps the result of one reading for memoTime. Callers that come meanwhile wait for the reading that runs.
type memo[T any] struct {
	now func() time.Time
	// read gets a context that ends after checkTimeout.
	read func(ctx context.Context) T

	mu    sync.Mutex
	at    time.Time
	value T
}

// newMemo measures the age of a reading by the clock of the machine, since that of a test may stand still.
func newMemo[T any](read func(context.Context) T) *memo[T] {
	return &memo[T]{now: time.Now, read: read}
}

// get returns the last result, or that of a new reading. It takes no context: a caller that leaves must not end a
// reading for which others wait.
func (m *memo[T]) get() T {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at.IsZero() || m.now().Sub(m.at) >= memoTime {
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
		defer cancel()
		m.value = m.read(ctx)
		m.at = m.now() // after it: else each caller that waited for a slow reading would make one
	}
	return m.value
}

// gatherOnce gathers metrics at most once in memoTime.
func gatherOnce[T any](gather func() ([]T, error)) func() ([]T, error) {
	type result struct {
		families []T
		err      error
	}
	once := newMemo(func(context.Context) (r result) {
		r.families, r.err = gather()
		return r
	})
	return func() ([]T, error) {
		r := once.get()
		return r.families, r.err
	}
}
