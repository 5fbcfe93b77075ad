package projections

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/panics"
)

// Config is what a Runtime works with. DB, Store, Codec, LogID and Logger are required.
type Config struct {
	// DB is the pool for pages and leases, separate from that of calls.
	DB *pgxpool.Pool
	// Calls is the pool by which calls that wait read the state of projections in other processes;
	// DB by default.
	Calls *pgxpool.Pool
	Store eventstore.Store
	Codec *eventstore.Codec
	// LogID answers the id of the log in Store; it may fail until the log is opened. See LogIDOf.
	LogID      func(context.Context) (uuid.UUID, error)
	Projectors []Projector
	Logger     *slog.Logger
	// Holder names this process among those on the database. One that starts under the name of an earlier one goes on at
	// once; so two that run together must differ. By default it is drawn at random.
	Holder string
	// Lease is how long another process waits after this one was last heard of; 10 s by default.
	Lease time.Duration
	// PageLimit ends a page of several events, which is then applied in halves; 30 s by default. EventLimit is the longest
	// that a single event may take, which gets twice the time with each try; 1 h by default.
	PageLimit, EventLimit time.Duration
	// RepeatLimit is how long a projector may repeat one page before it counts as stopped; 2 min by default.
	RepeatLimit time.Duration
	// Observer, if set, is called with every event that arrives while Run runs.
	Observer feed.Observer
	Hooks    Hooks
}

// Hooks are called, where set, as things happen, by several goroutines at once.
type Hooks struct {
	// Page is a page that was committed: how many events it had, how many were the projector's, and how long it took. Nobody
	// who waits for the page goes on before it returns.
	Page func(projection string, events, applied int, took time.Duration)
	// Stopped is a projector that stopped.
	Stopped func(projection string)
}

func (h Hooks) page(name string, events, applied int, took time.Duration) {
	if h.Page != nil {
		h.Page(name, events, applied, took)
	}
}

func (h Hooks) stopped(name string) {
	if h.Stopped != nil {
		h.Stopped(name)
	}
}

// Runtime runs the projectors of a process: each whenever no other process on the database does.
type Runtime struct {
	observer feed.Observer
	log      *slog.Logger
	db       *pgxpool.Pool
	feed     *feed.Feed
	runners  []*runner
	topics   map[string]*runner
	// waiter is for calls, inside for background work.
	waiter *Waiter
	inside *Waiter
	aside  *aside
}

// New makes a runtime. Nothing runs before Run.
func New(cfg Config) (*Runtime, error) {
	if cfg.DB == nil || cfg.Store == nil || cfg.Codec == nil || cfg.LogID == nil || cfg.Logger == nil {
		return nil, errors.New("projections: database, store, codec, log id and logger are required")
	}
	if cfg.Holder == "" {
		cfg.Holder = uuid.NewString()
	}
	if cfg.Lease <= 0 {
		cfg.Lease = 10 * time.Second
	}
	cfg.PageLimit, cfg.EventLimit = cmp.Or(cfg.PageLimit, pageLimit), cmp.Or(cfg.EventLimit, eventLimit)
	cfg.RepeatLimit = cmp.Or(cfg.RepeatLimit, repeatLimit)
	rt := &Runtime{
		observer: cfg.Observer, log: cfg.Logger, db: cfg.DB, topics: map[string]*runner{}, inside: NewWaiter(cfg.DB),
	}
	rt.inside.holder, rt.inside.repeatLimit = cfg.Holder, cfg.RepeatLimit
	outside := *rt.inside
	outside.db = cmp.Or(cfg.Calls, cfg.DB)
	rt.waiter = &outside
	rt.aside = newAside(cfg.Store, cfg.Codec)
	rt.feed = feed.New(cfg.Store, cfg.Codec, rt.position, cfg.Logger)
	for _, p := range cfg.Projectors {
		r := &runner{
			projector: p, table: newCheckpoints(cfg.DB, p.Name()), db: cfg.DB, store: cfg.Store, codec: cfg.Codec, feed: rt.feed, logID: cfg.LogID,
			aside: rt.aside, holder: cfg.Holder, lease: cfg.Lease, log: cfg.Logger.With("projection", p.Name()), hooks: cfg.Hooks,
			bounds: bounds{page: cfg.PageLimit, event: cfg.EventLimit}, repeatLimit: cfg.RepeatLimit, trust: trusted,
		}
		if _, twice := rt.waiter.local[p.Name()]; twice {
			return nil, fmt.Errorf("projections: two projectors are named %s", p.Name())
		}
		r.progress = &progress{}
		rt.waiter.local[p.Name()] = r.progress
		rt.waiter.versions[p.Name()] = p.Version()
		rt.topics[r.topic()] = r
		rt.runners = append(rt.runners, r)
	}
	return rt, nil
}

// Run runs the projectors until the context ends, and returns when each has finished the page at hand and given back its turn.
// A projector that stops does not end Run: see Health.
func (rt *Runtime) Run(ctx context.Context) error {
	if len(rt.runners) == 0 {
		<-ctx.Done()
		return nil
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: pageLimit + releaseLimit}, watermill.NewSlogLoggerWithLevelMapping(rt.log,
		map[slog.Level]slog.Level{slog.LevelInfo: slog.LevelDebug}))
	if err != nil {
		return fmt.Errorf("projections: %w", err)
	}
	router.AddMiddleware(middleware.Recoverer, middleware.Retry{
		MaxRetries: 6, InitialInterval: 20 * time.Millisecond, MaxInterval: time.Second, Multiplier: 2, MaxElapsedTime: 5 * time.Second,
		ResetContextOnRetry: true,
	}.Middleware)
	for _, r := range rt.runners {
		router.AddConsumerHandler(r.topic(), r.topic(), r, r.handle)
	}
	if rt.observer != nil {
		rt.feed.Observe(rt.observer)
	}
	watching, stop := context.WithCancel(ctx)
	var sentinel sync.WaitGroup
	for _, watch := range []func(context.Context){rt.sentinel, rt.followAside, rt.watchLeftovers} {
		sentinel.Go(func() {
			for p := newPause(100*time.Millisecond, 10*time.Second); panics.Call(watching, rt.log, "watch of projections panicked, will go on",
				func() error { watch(watching); return nil }) != nil; {
				p.wait(watching)
			}
		})
	}
	err = router.Run(ctx)
	stop()
	sentinel.Wait()
	if err = errors.Join(err, rt.feed.Close()); err != nil {
		return fmt.Errorf("projections: %w", err)
	}
	return nil
}

// position is the checkpoint of a topic, for the feed.
func (rt *Runtime) position(ctx context.Context, topic string) (eventstore.Position, error) {
	r, ok := rt.topics[topic]
	if !ok {
		return 0, fmt.Errorf("no projection has topic %s", topic)
	}
	return r.position(ctx)
}

// Waiter waits, on behalf of calls, for the projections of this process and of others.
func (rt *Runtime) Waiter() *Waiter { return rt.waiter }

// Inside is Waiter for background work: it does not use the connections of calls.
func (rt *Runtime) Inside() *Waiter { return rt.inside }

// LogIDOf reads the id of the log from the first event of its registry, and fails until that is written.
func LogIDOf(store eventstore.Store, codec *eventstore.Codec) func(context.Context) (uuid.UUID, error) {
	return func(ctx context.Context) (uuid.UUID, error) {
		first, err := store.Read(ctx, stream.Registry, 0, eventstore.Forwards, 1)
		if err != nil {
			return uuid.Nil, fmt.Errorf("read registry: %w", err)
		}
		if len(first) == 0 {
			return uuid.Nil, errors.New("the log is not opened yet")
		}
		decoded, err := codec.Decode(first[0])
		if err != nil {
			return uuid.Nil, err
		}
		opened, ok := decoded.(*registry.LogOpened)
		if !ok {
			return uuid.Nil, fmt.Errorf("the log begins with %s instead of its id", first[0].Type)
		}
		return opened.LogID, nil
	}
}
