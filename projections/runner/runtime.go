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
	"maps"
	"slices"
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

// Status is the state of a projection of this process.
type Status struct {
	Name    string
	Version int
	// Everything up to Position is applied. Head is the newest position that this process knows, 0 if
	// none.
	Position eventstore.Position
	Head     eventstore.Position
	// IsUnread is true if the checkpoint could not be read: Position is not known then.
	IsUnread bool
	// Active is true if this process has the lease.
	Active bool
	// Stop is set if the projection stopped, here or elsewhere, and no process continued.
	Stop *Stop
	// Repeat is the page that failed last, set until it passes.
	Repeat *Repeat
	// LastErr is a failure that may pass, such as a database that cannot be reached.
	LastErr error
}

// Lag is how far a projection lags, in positions of the log; 0 is up to date, or not known.
func (s Status) Lag() eventstore.Position {
	if s.IsUnread || s.Head <= s.Position {
		return 0
	}
	return s.Head - s.Position
}

// FeedStalls counts how often the live subscription to the log stalled while the log grew, and was
// restarted.
func (rt *Runtime) FeedStalls() uint64 { return rt.feed.Stalls() }

// Health returns the state of each projection of this process.
func (rt *Runtime) Health(ctx context.Context) []Status { return rt.health(ctx, rt.background) }

// HealthOn is Health, with the checkpoints read over a pool that neither calls nor background work use.
func (rt *Runtime) HealthOn(ctx context.Context, db *pgxpool.Pool) []Status {
	waiter := *rt.background
	waiter.db = db
	return rt.health(ctx, &waiter)
}

func (rt *Runtime) health(ctx context.Context, waiter *Waiter) []Status {
	var head eventstore.Position
	unread := map[string]error{}
	for _, topic := range rt.feed.Status() {
		head = max(head, topic.Known)
		unread[topic.Topic] = topic.Err
	}
	all := make([]Status, 0, len(rt.runners))
	for _, r := range rt.runners {
		now, err := waiter.state(ctx, r.projector.Name(), 0)
		s := Status{
			Name: r.projector.Name(), Version: r.projector.Version(), Position: now.position, Head: head,
			Active: now.active, Stop: now.stop, LastErr: now.lastErr, Repeat: now.repeat,
		}
		if s.LastErr == nil && now.active {
			s.LastErr = now.followUp
		}
		if s.LastErr == nil {
			s.LastErr = unread[r.topic()]
		}
		if err != nil {
			s.LastErr, s.IsUnread = err, true
		}
		all = append(all, s)
	}
	return all
}

// setAsidePoll is how often a process with a stopped projector refreshes what is set aside.
const setAsidePoll = 500 * time.Millisecond

// followSetAside polls for events set aside while a projector is stopped or repeats a page: no page
// refreshes them then.
func (rt *Runtime) followSetAside(ctx context.Context) {
	for ctx.Err() == nil {
		_ = backoff.Pause(ctx, setAsidePoll, nil)
		for _, r := range rt.runners {
			if now := r.progress.snapshot(); now.stop == nil && now.repeat == nil {
				continue
			}
			if err := rt.setAside.Refresh(ctx); err != nil && ctx.Err() == nil {
				rt.log.WarnContext(ctx, "read of events set aside failed, will retry", "err", err)
			}
			break
		}
	}
}

// RefreshSetAside reads what was set aside until now.
func (rt *Runtime) RefreshSetAside(ctx context.Context) error { return rt.setAside.Refresh(ctx) }

// IsSetAside returns what is set aside, by position.
func (rt *Runtime) IsSetAside() map[eventstore.Position]registry.EventSetAside {
	return rt.setAside.All()
}

// ListSetAside returns what was set aside until now, by position.
func (rt *Runtime) ListSetAside(ctx context.Context) ([]registry.EventSetAside, error) {
	if err := rt.RefreshSetAside(ctx); err != nil {
		return nil, err
	}
	list := slices.AppendSeq([]registry.EventSetAside{}, maps.Values(rt.setAside.All()))
	slices.SortFunc(list, func(a, b registry.EventSetAside) int { return cmp.Compare(a.Position, b.Position) })
	return list, nil
}

// HeldUpAt returns the projections that are stopped by the event at a position, and those that do not reach or apply
// it for a cause outside the event.
func (rt *Runtime) HeldUpAt(ctx context.Context, at eventstore.Position) (stopped []string, outside map[string]error) {
	outside = map[string]error{}
	for _, h := range rt.Health(ctx) {
		switch {
		case h.Stop != nil && h.Stop.Position == at, h.Repeat != nil && h.Repeat.OfEvent && h.Repeat.Next == at:
			stopped = append(stopped, h.Name)
		case h.Stop == nil && h.Repeat != nil && !h.Repeat.OfEvent && h.Repeat.holds(at, h.Position):
			outside[h.Name] = h.Repeat
		}
	}
	return stopped, outside
}

const (
	// othersPoll is how often a process reads the checkpoints that its watchers wait for and other
	// processes move.
	othersPoll = 100 * time.Millisecond
	// othersLimit bounds one such read.
	othersLimit = 5 * time.Second
	// remoteSetAsidePoll is how often a process without projectors reads what was set aside.
	remoteSetAsidePoll = 5 * time.Second
)

// runRemote is Run of a process whose projectors run in others.
func (rt *Runtime) runRemote(ctx context.Context) error {
	if rt.observer != nil {
		rt.feed.Observe(rt.observer)
	}
	rt.watch(ctx, rt.followOthers, rt.pollSetAside)()
	if err := rt.feed.Close(); err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	return nil
}

// followOthers wakes the watchers of projections that another process moves. Without a watcher it
// reads nothing.
func (rt *Runtime) followOthers(ctx context.Context) {
	seen := map[string]eventstore.Position{}
	for ctx.Err() == nil {
		_ = backoff.Pause(ctx, othersPoll, nil)
		for _, r := range rt.runners {
			if !r.progress.isWatchedElsewhere() {
				continue
			}
			limited, cancel := context.WithTimeout(ctx, othersLimit)
			row, err := r.table.read(limited)
			cancel()
			// A failed read is not logged: the watchers poll too, and log theirs.
			if name := r.projector.Name(); err == nil && row.position != seen[name] {
				seen[name] = row.position
				r.progress.change(func(*progress) {})
			}
		}
	}
}

// pollSetAside reads what was set aside, since no page does.
func (rt *Runtime) pollSetAside(ctx context.Context) {
	for ctx.Err() == nil {
		if err := rt.setAside.Refresh(ctx); err != nil && ctx.Err() == nil {
			rt.log.WarnContext(ctx, "read of events set aside failed, will retry", "err", err)
		}
		_ = backoff.Pause(ctx, remoteSetAsidePoll, nil)
	}
}

// watchConnection ends all leases as soon as the database closes a connection: it may have crashed
// and lost the newest checkpoints and rows, whose commits do not wait for the disk. The next leases
// begin at what is left. Until then no wait for a lost page succeeds: waits rely on what this
// process knows only while a connection is watched.
func (rt *Runtime) watchConnection(ctx context.Context) {
	defer rt.watchedSince.Store(nil) // also after a panic
	for p := (backoff.Backoff{First: 20 * time.Millisecond, Longest: time.Second}); ctx.Err() == nil; _ = p.Wait(ctx) {
		conn, err := rt.db.Acquire(ctx)
		if err != nil {
			continue // the runners log it
		}
		if err = conn.Ping(ctx); err == nil {
			p.Reset()
			now := time.Now()
			rt.watchedSince.Store(&now)
			// No process notifies this connection: the wait ends with it.
			_, err = conn.Conn().WaitForNotification(ctx)
			rt.watchedSince.Store(nil)
		}
		conn.Release()
		if ctx.Err() != nil {
			return
		}
		rt.log.WarnContext(ctx, "database connection lost, will take the leases again", "err", err)
		for _, r := range rt.runners {
			if l := r.current.Load(); l != nil {
				l.end()
			}
		}
	}
}

// NewestApplied returns the newest event of a log that any process has applied, as the checkpoints name it; position 0
// if none does.
func (rt *Runtime) NewestApplied(ctx context.Context, logID uuid.UUID) (eventstore.Position, uuid.UUID, error) {
	var (
		at eventstore.Position
		id uuid.UUID
	)
	for _, r := range rt.runners {
		row, err := r.table.read(ctx)
		if err != nil {
			return 0, uuid.Nil, err
		}
		if row.logID == logID && row.last != nil && row.position > at {
			at, id = row.position, *row.last
		}
	}
	return at, id, nil
}
