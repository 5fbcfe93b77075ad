package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/probe"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/metering"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/continuity"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/inspect"
	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/recallindex/elastic"
	"github.com/annals-project/annals/projections/runner"
	"github.com/annals-project/annals/projections/usage"
)

// Rebuilder is the projections of a service that does not run. It locks the data folder until
// Close.
type Rebuilder struct {
	runtime *runner.Runtime
	st      *storage
}

// OpenRebuilder opens what a service would open, without listening and serving.
func OpenRebuilder(ctx context.Context, cfg Config) (*Rebuilder, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	st, err := openStorage(ctx, cfg)
	if err != nil {
		return nil, err
	}
	events := engine.NewJournal(st.store, st.codec, cfg.Logger)
	if err := cfg.Data.UseHashKey(ctx, events); err != nil {
		return nil, errors.Join(err, st.close())
	}
	if err := st.claim(ctx, cfg); err != nil {
		return nil, errors.Join(err, st.close())
	}
	models, err := newModels(ctx, cfg, st)
	if err != nil {
		return nil, errors.Join(err, st.close())
	}
	runtime, err := runner.New(runner.Config{
		DB: st.work, Store: st.store, Codec: st.codec, LogID: runner.LogIDOf(st.store, st.codec), Logger: cfg.Logger,
		Projectors: projectors(cfg, st, events.Namespaces, models.projected, domainrecall.NewAnalyzers()),
	})
	if err != nil {
		return nil, errors.Join(err, st.close())
	}
	return &Rebuilder{runtime, st}, nil
}

// Projections returns the names of the projections, in the order in which all of them are rebuilt.
func (r *Rebuilder) Projections(context.Context) ([]string, error) { return r.runtime.Names(), nil }

// RebuildAll builds projections from the log in shadows, at the same time, and switches over to them.
func (r *Rebuilder) RebuildAll(
	ctx context.Context, names []string, options runner.RebuildOptions, report func(runner.RebuildProgress),
) error {
	if options.OlderCopy {
		// Some of what was signed is gone. The audit trees go on as other origins.
		if err := checkpoints.Forget(ctx, r.st.work); err != nil {
			return err
		}
	}
	return r.runtime.RebuildAll(ctx, names, options, report)
}

// Close closes the storage.
func (r *Rebuilder) Close() error { return r.st.close() }

// OpenLog opens the event store at an address, to show its events. The caller must call done.
func OpenLog(address string) (log inspect.Log, done func() error, err error) {
	store, err := openStore(address)
	if err != nil {
		return log, nil, err
	}
	return inspect.Log{Store: store}, store.Close, nil
}

// OpenCommands opens the event store and the database at addresses, for the commands on organizations and their
// projects. The servers that use them apply what it writes. The caller must call done.
func OpenCommands(
	ctx context.Context, eventStore, postgres, schemaPrefix, dataDir string, terms metering.PlanTerms,
) (service *commands.Service, done func() error, err error) {
	store, err := openStore(eventStore)
	if err != nil {
		return nil, nil, err
	}
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	logID, err := tenancy.LogID(ctx, eventstore.Journal{Store: store, Codec: codec})
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	db, err := pg.OpenPool(ctx, postgres, pg.SchemaPrefix(schemaPrefix))
	if err != nil {
		return nil, nil, errors.Join(pg.Explained(err, "ANNALS_POSTGRES"), store.Close())
	}
	if err := ops.CheckOwner(ctx, db, logID); err != nil {
		db.Close()
		return nil, nil, errors.Join(err, store.Close())
	}
	log := continuity.New(store, continuity.DefaultPatience, slog.New(slog.DiscardHandler))
	if err := compareWithAccess(ctx, log, codec, db); err != nil {
		db.Close()
		return nil, nil, errors.Join(err, store.Close())
	}
	service = commands.New(commands.Config{
		Journal: engine.NewJournal(log, codec, slog.New(slog.DiscardHandler)), Waiter: runner.NewWaiter(db),
		PlanTerms: terms, Accounts: usage.Queries{DB: db, PlanTerms: terms},
		Credentials: datafolder.Credentials{Dir: dataDir},
	})
	return service, func() error { db.Close(); return store.Close() }, nil
}

// compareWithAccess compares a log with what the servers on it have applied. A log or tables that a server has not made
// yet compare with nothing.
func compareWithAccess(ctx context.Context, log *continuity.Store, codec *eventstore.Codec, db *pgxpool.Pool) error {
	logID := runner.LogIDOf(log, codec)
	id, err := logID(ctx)
	if err != nil {
		return nil //nolint:nilerr // the command itself finds out that it cannot read the log
	}
	servers, err := runner.New(runner.Config{
		DB: db, Store: log, Codec: codec, LogID: logID, Projectors: []projections.Projector{access.New()}, Remote: true,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	at, last, err := servers.NewestApplied(ctx, id)
	if err != nil {
		return err
	}
	log.Applied(at, last)
	return log.Check(ctx)
}

// CheckEventStore returns an error for what is no address of an event store.
func CheckEventStore(address string) error { return esdb.CheckConnectionString(address) }

// openStore opens the event store at an address.
func openStore(address string) (*esdb.Store, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	if scheme != "esdb" && scheme != "esdb+discover" || rest == "" {
		return nil, errors.New(`the event store is neither "embedded" nor an address such as esdb://host:2113`)
	}
	return esdb.Open(esdb.Config{ConnectionString: address, Logger: slog.New(slog.DiscardHandler)})
}

// CheckLog returns an error unless the event store of a configuration answers, and its log is empty or written with the
// hash key. It writes nothing.
func CheckLog(ctx context.Context, cfg Config) (err error) {
	store, err := openStore(cfg.EventStore)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		return err
	}
	key, err := cfg.Data.ReadHashKey()
	if err != nil {
		return err
	}
	log := &engine.Journal{Journal: eventstore.Journal{Store: store, Codec: codec}}
	return cfg.Data.ExplainHashKey(tenancy.CheckHashKey(ctx, log, key))
}

// Probes returns the probes of the servers that a service with a configuration would call in the background.
func Probes(cfg Config) ([]*probe.Server, error) {
	cfg.Logger = slog.New(slog.DiscardHandler)
	p := &probes{}
	cfg = p.observed(cfg)
	if cfg.Index != nil {
		p.index = newIndexProbe(cfg, func(ctx context.Context) error { return elastic.Check(ctx, *cfg.Index) })
	}
	return p.all(), p.open(cfg, &storage{})
}
