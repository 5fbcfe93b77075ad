package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/eventstore/continuity"
	"github.com/annals-project/annals/eventstore/cut"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/projections/recallindex/elastic"
	"github.com/annals-project/annals/projections/runner"
)

// connections is how many connections to the event store share the calls, because one HTTP/2
// connection serialises its writes.
const connections = 4

// callConnections and workConnections bound the connections to Postgres of calls and of background
// work: projections, their leases, and the work lists of the pipeline. The pools are separate so
// that many calls cannot starve the background work. Each projection that is rebuilt in a shadow
// takes runner.shadowConnections more. checkConnections are those of the operation routes, which anybody may
// call: they take none from the others, and see a server that answers while these are all in use.
const (
	callConnections  = 32
	workConnections  = 24
	checkConnections = 1
	// leastConnections is the least that pool_max_conns may allow the pools together.
	leastConnections = 10
)

// logStore is the event store of the log, an esdb.Store unless a test sets another.
type logStore interface {
	eventstore.Store
	Stats() esdb.Stats
}

// storage is the log, the database and the index, embedded or not.
type storage struct {
	node     *node.Node // nil for a cluster
	postgres *pg.Server // nil for a separate server
	store    logStore
	compared *continuity.Store // below store: notices that the log went back
	hidden   *cut.Store        // above compared: shows streams again that somebody else hid
	// logID is the log of the event store; uuid.Nil while that is empty.
	logID   uuid.UUID
	codec   *eventstore.Codec
	aside   *eventstore.SetAside // for the read side
	db      *pgxpool.Pool        // for calls
	work    *pgxpool.Pool        // for background work
	checks  *pgxpool.Pool        // for the operation routes
	replica *replica.Reader      // of the database, nil for none
	index   recallindex.Index    // nil if no role of the process needs it
}

// journal returns the event log for the projections.
func (st *storage) journal() eventstore.Journal {
	return eventstore.Journal{Store: st.store, Codec: st.codec, Aside: st.aside}
}

// openStorage opens the log, checks its format, then opens the database and the index in parallel. It refuses a
// database and a data folder of another log, and writes to neither: claim does, once the log has its id.
func openStorage(ctx context.Context, cfg Config) (_ *storage, err error) {
	logger := cfg.Logger
	if err := cfg.Data.RefuseBackup(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Data.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder that ANNALS_DATA_DIR (--data-dir) names: %w", err)
	}
	st := &storage{}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	if st.codec, err = eventstore.NewCodec(domain.Catalog); err != nil {
		return nil, err
	}
	// Open the log first: it opens fast, and fails at once if another process uses the data folder.
	if err := st.openLog(ctx, cfg, logger); err != nil {
		return nil, err
	}
	var g errgroup.Group
	g.Go(func() error { return st.openDatabase(ctx, cfg, logger) })
	if cfg.Roles.HasAny(openIndexRoles) {
		g.Go(func() error { return st.openIndex(ctx, cfg, logger) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return st, st.checkOwner(ctx, cfg)
}

// checkOwner returns an error unless the database and the data folder are new, or of the log of the event store.
func (st *storage) checkOwner(ctx context.Context, cfg Config) error {
	check := func() error {
		err := cfg.Data.CheckLog(st.logID)
		if err == nil && st.logID == uuid.Nil {
			err = cfg.Data.CheckUnused()
		}
		if err == nil {
			err = ops.CheckOwner(ctx, st.db, st.logID)
		}
		return err
	}
	err := check()
	if err == nil || st.logID != uuid.Nil {
		return err
	}
	// Another process may have opened the log since it was read, and then what was found here.
	var failed error
	if st.logID, failed = tenancy.LogID(ctx, st.journal()); failed != nil || st.logID == uuid.Nil {
		return errors.Join(err, failed)
	}
	return check()
}

// claim makes the database and the data folder those of the log, or checks that they are.
func (st *storage) claim(ctx context.Context, cfg Config) (err error) {
	if st.logID, err = tenancy.LogID(ctx, st.journal()); err != nil {
		return err
	}
	if st.logID == uuid.Nil {
		return errors.New("the log is empty: start a process with role write, which opens it")
	}
	if err := withCure(st.db, ops.Migrate(ctx, st.db, st.logID)); err != nil {
		return err
	}
	return cfg.Data.RecordLog(st.logID)
}

func (st *storage) openIndex(ctx context.Context, cfg Config, logger *slog.Logger) error {
	if cfg.Index != nil {
		options := *cfg.Index
		options.Log, options.HoldNew = logger, true
		index, err := elastic.Open(ctx, options)
		if err != nil {
			return fmt.Errorf("the Elasticsearch that ANNALS_INDEX names cannot be used (check %s): %w",
				strings.Join(indexSettings(options, err), ", "), err)
		}
		st.index = index
		return nil
	}
	index, err := bleve.Open(filepath.Join(cfg.Data.Dir, "recall"), bleve.Options{Log: logger})
	if err == nil {
		st.index = index
	}
	return err
}

func (st *storage) openLog(ctx context.Context, settings Config, logger *slog.Logger) (err error) {
	cfg := esdb.Config{ConnectionString: settings.EventStore, Logger: logger, Connections: connections, BatchAppends: true}
	if settings.EventStore == Embedded {
		if st.node, err = node.Start(ctx, node.Config{
			Dir:    filepath.Join(settings.Data.Dir, "log"),
			Logger: logger,
		}); err != nil {
			return err
		}
		cfg = datafolder.ConnectTo(st.node, cfg)
	}
	store, err := esdb.Open(cfg)
	if err != nil {
		return err
	}
	st.store = store
	if settings.wrapStore != nil {
		st.store = settings.wrapStore(store)
	}
	patience := continuity.DefaultPatience
	if st.node != nil {
		patience = 0 // no other member can lead
	}
	st.compared = continuity.New(st.store, patience, logger)
	st.hidden = cut.New(st.compared, logger)
	st.store = watchedStore{st.hidden, st.store}
	st.aside = eventstore.NewSetAside(st.store, st.codec)
	return st.awaitLog(ctx, logger)
}

// watchedStore is a log store that fails once the log went back, and that shows streams again that somebody else hid.
type watchedStore struct {
	*cut.Store
	under logStore
}

func (s watchedStore) Stats() esdb.Stats { return s.under.Stats() }

// startWait is how long a start waits for an event store, a Postgres or an Elasticsearch that does not
// answer, as while it starts itself or a cluster elects its leader.
const startWait = elastic.ConnectTime

// serverRetry is the pause between two tries of a start to reach a server.
const serverRetry = time.Second

// awaitServer tries to reach a server until it answers. It fails at once if the server refuses: then a
// setting is wrong.
func awaitServer(
	ctx context.Context, logger *slog.Logger, server string, reach func() error, isRefusal func(error) bool,
) error {
	until := time.Now().Add(startWait)
	for {
		err := reach()
		if err == nil || isRefusal(err) || time.Now().After(until) {
			return err
		}
		logger.WarnContext(ctx, "a server does not answer yet, will retry", "server", server, "err", pg.Plain(err))
		if ended := backoff.Pause(ctx, serverRetry, nil); ended != nil {
			return errors.Join(err, ended)
		}
	}
}

// awaitLog waits until the event store answers, and refuses a log of another format.
func (st *storage) awaitLog(ctx context.Context, logger *slog.Logger) error {
	err := awaitServer(ctx, logger, "event store", func() error {
		_, err := st.store.Head(ctx)
		if err == nil {
			st.logID, err = tenancy.LogID(ctx, st.journal())
		}
		return err
	}, func(err error) bool {
		return !errors.Is(err, eventstore.ErrUnavailable) || errors.Is(err, esdb.ErrUntrusted) ||
			errors.Is(err, esdb.ErrCredentials) || errors.Is(err, eventstore.ErrDenied)
	})
	if errors.Is(err, eventstore.ErrDenied) {
		err = fmt.Errorf(`%w (name a user that the metadata of $all lets read: {"$acl":{"$r":["$admins","USER"]}} in $$$all)`, err)
	}
	if _, refused := errors.AsType[*registry.FormatError](err); refused || err == nil {
		return err
	}
	return fmt.Errorf("the event store that ANNALS_EVENTSTORE names cannot be used: %w", err)
}

func (st *storage) openDatabase(ctx context.Context, cfg Config, logger *slog.Logger) (err error) {
	url := cfg.Postgres
	if cfg.Postgres == Embedded {
		if st.postgres, err = pg.Start(ctx, pg.Config{DataDir: cfg.Data.Dir, Logger: logger}); err != nil {
			return err
		}
		url = st.postgres.URL()
	}
	calls, work, err := shares(pg.MaxConns(url))
	if err != nil {
		return err
	}
	prefix := pg.SchemaPrefix(cfg.SchemaPrefix)
	if st.db, err = st.openPool(ctx, url, logger, prefix, func(c *pgxpool.Config) { c.MaxConns = calls }); err != nil {
		return err
	}
	if st.work, err = st.openPool(ctx, url, logger, prefix, func(c *pgxpool.Config) { c.MaxConns = work }); err != nil {
		return err
	}
	if st.checks, err = st.openPool(ctx, url, logger, prefix, func(c *pgxpool.Config) {
		c.MaxConns, c.ConnConfig.ConnectTimeout = checkConnections, checkTimeout
	}); err != nil {
		return err
	}
	return nil
}

// logStopped returns why the embedded log cannot write until a restart, nil while it can. It
// returns nil for a cluster.
func (st *storage) logStopped() error {
	if st.node == nil {
		return nil
	}
	return st.node.Err()
}

// wentBack returns why nothing may be written or answered, since the log is an older copy; nil if it is not.
func (st *storage) wentBack() error {
	if st.compared == nil {
		return nil
	}
	return st.compared.Err()
}

// logTrouble returns why the log does not work fully, "" if it does. head is what the last read of its head failed
// with.
func (st *storage) logTrouble(head error) (reason condition.Reason, cause error) {
	if err := st.logStopped(); err != nil {
		return storeStopped, err
	}
	if err := st.wentBack(); err != nil {
		return olderCopy, err
	}
	if errors.Is(head, esdb.ErrCredentials) || errors.Is(head, eventstore.ErrDenied) {
		return refusesUser, head
	}
	if head != nil {
		return silent, head
	}
	return "", nil
}

// close closes what is open, the users before what they use.
func (st *storage) close() error {
	var errs []error
	if st.index != nil {
		errs = append(errs, st.index.Close())
	}
	st.replica.Close()
	for _, pool := range []*pgxpool.Pool{st.db, st.work, st.checks} {
		if pool != nil {
			pool.Close()
		}
	}
	if st.postgres != nil {
		errs = append(errs, st.postgres.Close())
	}
	if st.store != nil {
		errs = append(errs, st.store.Close())
	}
	if st.node != nil {
		errs = append(errs, st.node.Close())
	}
	return errors.Join(errs...)
}

// watchPostgres starts the private Postgres again if it ends, and fails if that does not help: then a
// start of the whole service is tried by what supervises it.
func (st *storage) watchPostgres(ctx context.Context) error {
	if st.postgres == nil {
		<-ctx.Done()
		return nil
	}
	return st.postgres.Supervise(ctx)
}

// openPool opens a pool once the server answers and has a free connection.
func (st *storage) openPool(
	ctx context.Context, url string, logger *slog.Logger, configure ...func(*pgxpool.Config),
) (pool *pgxpool.Pool, err error) {
	err = awaitServer(ctx, logger, "postgres", func() (err error) {
		pool, err = pg.OpenPool(ctx, url, configure...)
		return err
	}, pg.IsRefusal)
	if st.postgres == nil {
		err = pg.Explained(err, "ANNALS_POSTGRES")
	}
	if refused, is := errors.AsType[*pgconn.PgError](err); is && refused.Code == tooManyConnections {
		err = fmt.Errorf("%w (the server or the role of ANNALS_POSTGRES allows too few connections: this process opens up "+
			"to %d, or what pool_max_conns in ANNALS_POSTGRES allows)", err, callConnections+workConnections+checkConnections)
	}
	return pool, err
}

// shares divides what pool_max_conns allows a process among its pools; 0 is no bound.
func shares(most int32) (calls, work int32, err error) {
	switch {
	case most == 0:
		return callConnections, workConnections, nil
	case most < leastConnections:
		return 0, 0, fmt.Errorf("pool_max_conns in ANNALS_POSTGRES is %d and must be at least %d", most, leastConnections)
	}
	rest := most - checkConnections
	calls = min(rest*callConnections/(callConnections+workConnections), callConnections)
	return calls, min(rest-calls, workConnections), nil
}

// The SQLSTATEs of a start that an operator of Postgres ends.
const (
	tooManyConnections = "53300"
	missingRight       = "42501"
	readOnly           = "25006"
)

// withCure adds to a missing right the statement that grants it, and to a read-only session what makes it so.
func withCure(db *pgxpool.Pool, err error) error {
	refused, is := errors.AsType[*pgconn.PgError](err)
	if is && refused.Code == readOnly {
		return fmt.Errorf("the database that ANNALS_POSTGRES names is read-only: %w (it is a standby, or "+
			"default_transaction_read_only is on, or was when a pooler opened the session: RECONNECT there)", err)
	}
	if !is || refused.Code != missingRight {
		return err
	}
	of := db.Config().ConnConfig
	return fmt.Errorf("the role that ANNALS_POSTGRES names lacks a right: %w (it must own its schemas and may make them: "+
		"GRANT CREATE ON DATABASE %s TO %s)", err,
		pgx.Identifier{of.Database}.Sanitize(), pgx.Identifier{of.User}.Sanitize())
}

// compareEvery is how often a process compares the log with what was applied. A process that follows the log, or
// writes to it, notices an older copy at once.
const compareEvery = 5 * time.Second

// comparison compares the log with what the projections of all processes have applied.
type comparison struct {
	log     *continuity.Store
	runtime *runner.Runtime
	logID   func(context.Context) (uuid.UUID, error)
	logger  *slog.Logger
	// id is the id of the log, once it was read.
	id uuid.UUID
}

// run compares until the context ends.
func (c *comparison) run(ctx context.Context) error {
	for sleep(ctx, compareEvery) {
		c.compare(ctx)
	}
	return nil
}

// compare compares once. A log that cannot be read is seen elsewhere; a log that went back is reported by the store.
func (c *comparison) compare(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, compareEvery)
	defer cancel()
	err := func() (err error) {
		if c.id == uuid.Nil {
			if c.id, err = c.logID(ctx); err != nil {
				return err
			}
		}
		at, id, err := c.runtime.NewestApplied(ctx, c.id)
		if err != nil {
			return err
		}
		c.log.Applied(at, id)
		return c.log.Check(ctx)
	}()
	if err != nil && c.log.Err() == nil {
		c.logger.DebugContext(ctx, "log not compared with what was applied, will retry", "err", err)
	}
}
