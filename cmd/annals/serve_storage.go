package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
)

// connections is how many connections to the event store share the calls: one HTTP/2 connection serialises its writes.
const connections = 4

// callConnections and workConnections bound the connections to Postgres of calls and of background
// work: projections, their leases, and the work lists of the pipeline. The pools are separate so
// that many calls cannot starve the background work. Each projection that is rebuilt in a shadow
// takes projections.besideConnections more.
const (
	callConnections = 32
	workConnections = 24
)

// storage is what the process keeps: the log, the database and the index, embedded or not.
type storage struct {
	node     *node.Node // nil for a cluster
	postgres *pg.Server // nil for a server of its own
	store    *esdb.Store
	codec    *eventstore.Codec
	db       *pgxpool.Pool // for calls
	work     *pgxpool.Pool // for background work
	index    recallindex.Index
}

// openStorage opens the log, then the database and the index at once, which do not need each other.
func openStorage(ctx context.Context, s *Settings, log *slog.Logger) (_ *storage, err error) {
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
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
	// The log comes first: it is there in a moment, and it says at once where another process has the data folder.
	if err := st.openLog(ctx, s, log); err != nil {
		return nil, err
	}
	var g errgroup.Group
	g.Go(func() error { return st.openDatabase(ctx, s, log) })
	g.Go(func() error {
		index, err := bleve.Open(filepath.Join(s.DataDir, "recall"), bleve.Options{Log: log})
		if err == nil {
			st.index = index
		}
		return err
	})
	return st, g.Wait()
}

func (st *storage) openLog(ctx context.Context, s *Settings, log *slog.Logger) (err error) {
	cfg := esdb.Config{ConnectionString: s.EventStore, Logger: log, Connections: connections, Together: true}
	if s.EventStore == Embedded {
		if st.node, err = node.Start(ctx, node.Config{Dir: filepath.Join(s.DataDir, "log"), Logger: log}); err != nil {
			return err
		}
		cfg = connectTo(st.node, cfg)
	}
	st.store, err = esdb.Open(cfg)
	return err
}

// connectTo is the configuration of a client of an embedded node.
func connectTo(n *node.Node, cfg esdb.Config) esdb.Config {
	c := n.Connection()
	cfg.ConnectionString, cfg.Username, cfg.Password, cfg.RootCAs = c.ConnectionString(), c.Username, c.Password, c.RootCAs
	return cfg
}

func (st *storage) openDatabase(ctx context.Context, s *Settings, log *slog.Logger) (err error) {
	url := s.Postgres
	if s.Postgres == Embedded {
		if st.postgres, err = pg.Start(ctx, pg.Config{DataDir: s.DataDir, Logger: log}); err != nil {
			return err
		}
		url = st.postgres.URL()
	}
	if st.db, err = pg.OpenPool(ctx, url, func(c *pgxpool.Config) { c.MaxConns = callConnections }); err != nil {
		return err
	}
	if st.work, err = pg.OpenPool(ctx, url, func(c *pgxpool.Config) { c.MaxConns = workConnections }); err != nil {
		return err
	}
	return pg.Migrate(ctx, st.db)
}

// logStopped says why the embedded log can write no more until a new start, nil while it can. Of a cluster it knows nothing.
func (st *storage) logStopped() error {
	if st.node == nil {
		return nil
	}
	return st.node.Err()
}

// logTrouble is why the log does not do all of its work, "" where it does.
func (st *storage) logTrouble(ctx context.Context) (reason string, cause error) {
	if err := st.logStopped(); err != nil {
		return "writes are refused: restart the service; the log names the cause", err
	}
	if _, err := st.store.Head(ctx); err != nil {
		return "it does not answer; the log names the cause", err
	}
	return "", nil
}

// close closes what was opened, the users before what they use.
func (st *storage) close() error {
	var errs []error
	if st.index != nil {
		errs = append(errs, st.index.Close())
	}
	for _, pool := range []*pgxpool.Pool{st.db, st.work} {
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
