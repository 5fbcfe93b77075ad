// Package runner runs projectors, each under a lease that one process at a time holds. It keeps
// their checkpoints, rebuilds them in a shadow, and wakes callers that wait for them. Begin with
// runtime.go and runner.go.
package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections"
)

// Config configures a Runtime. DB, Store, Codec, LogID and Logger are required.
type Config struct {
	// DB is the pool for pages and leases, not the one for calls.
	DB *pgxpool.Pool
	// Calls is the pool with which waiting calls read the state of projections in other processes; DB
	// by default.
	Calls *pgxpool.Pool
	Store eventstore.Store
	Codec *eventstore.Codec
	// LogID returns the id of the log in Store; it may fail until bootstrap. See LogIDOf.
	LogID      func(context.Context) (uuid.UUID, error)
	Projectors []projections.Projector
	// Remote is true if other processes run the projectors. This process only waits for them and
	// takes no lease: it uses only the names and versions of Projectors.
	Remote bool
	Logger *slog.Logger
	// Holder names this process among those on the database. A process with the name of an earlier one
	// takes its leases at once, so each running process needs its own name. It is random by default.
	Holder string
	// Lease is how long another process waits after the last renewal; defaultLease by default.
	Lease time.Duration
	// PageLimit bounds a page of several events, which is then applied in halves; 30 s by default.
	// EventLimit bounds a single event, whose limit doubles with each try; 1 h by default.
	PageLimit, EventLimit time.Duration
	// RepeatLimit is how long a projector may repeat one page before it counts as stopped; 2 min by
	// default.
	RepeatLimit time.Duration
	// Observer, if set, is called with every event that arrives while Run runs.
	Observer feed.Observer
	Hooks    Hooks
}

// Hooks are called by several goroutines at once. Each may be nil.
type Hooks struct {
	// Page is called after the commit of a page: with its events, how many were the projector's, and
	// the time taken. Waiters for the page continue after it returns.
	Page func(projection string, events, applied int, took time.Duration)
	// Slice is called after the commit of a slice of a follow-up. Waiters for it continue after it returns.
	Slice func(projection string, took time.Duration)
	// Stopped is called when a projector stops.
	Stopped func(projection string)
}

func (h Hooks) page(name string, events, applied int, took time.Duration) {
	if h.Page != nil {
		h.Page(name, events, applied, took)
	}
}

func (h Hooks) slice(name string, took time.Duration) {
	if h.Slice != nil {
		h.Slice(name, took)
	}
}

func (h Hooks) stopped(name string) {
	if h.Stopped != nil {
		h.Stopped(name)
	}
}

// Runtime runs the projectors of a process, each while this process has its lease.
type Runtime struct {
	observer feed.Observer
	remote   bool
	log      *slog.Logger
	db       *pgxpool.Pool
	logID    func(context.Context) (uuid.UUID, error)
	store    eventstore.Store
	codec    *eventstore.Codec
	feed     *feed.Feed
	runners  []*runner
	topics   map[string]*runner
	// waiter serves calls, background serves background work.
	waiter     *Waiter
	background *Waiter
	setAside   *eventstore.SetAside
	// watchedSince is when the connection of watchConnection was opened, nil while there is none.
	watchedSince atomic.Pointer[time.Time]
}

// New makes a runtime. Nothing runs before Run.
func New(cfg Config) (*Runtime, error) {
	if cfg.DB == nil || cfg.Store == nil || cfg.Codec == nil || cfg.LogID == nil || cfg.Logger == nil {
		return nil, errors.New("runner: DB, Store, Codec, LogID and Logger are required")
	}
	if cfg.Holder == "" {
		cfg.Holder = uuid.NewString()
	}
	if cfg.Lease <= 0 {
		cfg.Lease = defaultLease
	}
	cfg.PageLimit, cfg.EventLimit = cmp.Or(cfg.PageLimit, pageLimit), cmp.Or(cfg.EventLimit, eventLimit)
	cfg.RepeatLimit = cmp.Or(cfg.RepeatLimit, repeatLimit)
	rt := &Runtime{
		observer: cfg.Observer, remote: cfg.Remote, log: cfg.Logger, db: cfg.DB, logID: cfg.LogID,
		store: cfg.Store, codec: cfg.Codec,
		topics: map[string]*runner{}, background: NewWaiter(cfg.DB),
	}
	rt.background.holder, rt.background.repeatLimit = cfg.Holder, cfg.RepeatLimit
	calls := *rt.background
	calls.db = cmp.Or(cfg.Calls, cfg.DB)
	rt.waiter = &calls
	rt.setAside = eventstore.NewSetAside(cfg.Store, cfg.Codec)
	rt.feed = feed.New(cfg.Store, cfg.Codec, rt.position, cfg.Logger)
	for _, p := range cfg.Projectors {
		r := &runner{
			projector: p, table: newCheckpoints(cfg.DB, p.Name()), db: cfg.DB, store: cfg.Store, codec: cfg.Codec,
			feed: rt.feed, logID: cfg.LogID,
			setAside: rt.setAside, holder: cfg.Holder, leaseTime: cfg.Lease, shadow: make(shadowLock, 1),
			log: cfg.Logger.With("projection", p.Name()), hooks: cfg.Hooks,
			bounds: bounds{page: cfg.PageLimit, event: cfg.EventLimit}, repeatLimit: cfg.RepeatLimit, trust: trustFor,
			again:        backoff.Backoff{First: 5 * time.Millisecond, Longest: 5 * time.Second},
			watchedSince: &rt.watchedSince,
		}
		if _, twice := rt.waiter.local[p.Name()]; twice {
			return nil, fmt.Errorf("runner: two projectors are named %s", p.Name())
		}
		r.progress = &progress{}
		rt.waiter.local[p.Name()] = r.progress
		rt.waiter.projectors[p.Name()] = p
		rt.topics[r.topic()] = r
		rt.feed.Extend(r.topic(), p.Pace().Full)
		rt.runners = append(rt.runners, r)
	}
	return rt, nil
}

// Run runs the projectors until the context ends, and returns when each has finished its page and
// released its lease. A stopped projector does not end Run: see Health.
func (rt *Runtime) Run(ctx context.Context) error {
	if len(rt.runners) == 0 {
		<-ctx.Done()
		return nil
	}
	if rt.remote {
		return rt.runRemote(ctx)
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: pageLimit + releaseLimit},
		watermill.NewSlogLoggerWithLevelMapping(rt.log, map[slog.Level]slog.Level{slog.LevelInfo: slog.LevelDebug}))
	if err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	router.AddMiddleware(middleware.Recoverer, middleware.Retry{
		MaxRetries: 6, InitialInterval: 20 * time.Millisecond, MaxInterval: time.Second, Multiplier: 2,
		MaxElapsedTime: 5 * time.Second, ResetContextOnRetry: true,
	}.Middleware)
	for _, r := range rt.runners {
		router.AddConsumerHandler(r.topic(), r.topic(), r, r.handleMessage)
	}
	if rt.observer != nil {
		rt.feed.Observe(rt.observer)
	}
	watching, stop := context.WithCancel(ctx)
	watched := rt.watch(watching, rt.watchConnection, rt.followSetAside, rt.watchLeftovers, rt.followOthers)
	err = router.Run(ctx)
	stop()
	watched()
	if err = errors.Join(err, rt.feed.Close()); err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	return nil
}

// watch runs watches until the context ends. wait waits for their end.
func (rt *Runtime) watch(ctx context.Context, watches ...func(context.Context)) (wait func()) {
	var running sync.WaitGroup
	for _, watch := range watches {
		running.Go(func() {
			const panicked = "watch of projections panicked, will retry"
			run := func() error { watch(ctx); return nil }
			p := backoff.Backoff{First: 100 * time.Millisecond, Longest: 10 * time.Second}
			for panics.Call(ctx, rt.log, panicked, run) != nil {
				_ = p.Wait(ctx)
			}
		})
	}
	return running.Wait
}

// position returns the checkpoint of a topic, for the feed.
func (rt *Runtime) position(ctx context.Context, topic string) (eventstore.Position, error) {
	r, ok := rt.topics[topic]
	if !ok {
		return 0, fmt.Errorf("no projection has topic %s", topic)
	}
	return r.position(ctx)
}

// Waiter returns the waiter for calls.
func (rt *Runtime) Waiter() *Waiter { return rt.waiter }

// BackgroundWaiter returns the waiter for background work. It does not use the connections of calls.
func (rt *Runtime) BackgroundWaiter() *Waiter { return rt.background }

// LogIDOf reads the id of the log from the first event of its registry, and fails until that is
// written.
func LogIDOf(store eventstore.Store, codec *eventstore.Codec) func(context.Context) (uuid.UUID, error) {
	return func(ctx context.Context) (uuid.UUID, error) {
		first, err := store.Read(ctx, stream.Registry, 0, eventstore.Forwards, 1)
		if err != nil {
			return uuid.Nil, fmt.Errorf("read registry: %w", err)
		}
		if len(first) == 0 {
			return uuid.Nil, errors.New("the log has no first event yet")
		}
		decoded, err := codec.Decode(first[0])
		if err != nil {
			return uuid.Nil, err
		}
		opened, ok := decoded.(*registry.LogOpened)
		if !ok {
			return uuid.Nil, fmt.Errorf("first event of the log is %s, not its id", first[0].Type)
		}
		return opened.LogID, nil
	}
}
