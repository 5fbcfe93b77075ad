// Package esdb keeps the log in EventStoreDB: in a cluster, or in the embedded node.
//
// It is the only package that uses the driver, and it makes up for these faults of the driver: it
// never sends requires-leader, it ignores the context of a call while it connects, it cannot
// discover by several hosts (see finder), it never uses a client again whose discovery failed, and
// it reports most refusals as "unknown" (see classify).
package esdb

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/metadata"

	"github.com/annals-project/annals/eventstore"
)

// Config names the server and the credentials.
type Config struct {
	// ConnectionString is the usual "esdb://host:2113?tls=true", or that of a cluster with a
	// leader to be discovered: "esdb+discover://user:password@host1:2113,host2:2113?tlsCAFile=…".
	// The fields below override it.
	ConnectionString string
	// Username and Password are sent only over TLS; empty means those of the connection string.
	Username string
	Password string
	// RootCAs are trusted besides the certificates that ConnectionString names; nil adds none.
	RootCAs *x509.CertPool
	Logger  *slog.Logger
	// Connections is how many connections share the calls, at least 1.
	Connections int
	// BatchAppends sends small appends over one shared call, if the address names one server that
	// supports it. The appends and their results are the same, for a fraction of the processor time.
	BatchAppends bool
}

// Store is an eventstore.Store over EventStoreDB.
type Store struct {
	pool *pool
	// batches is nil if each append is a separate call.
	batches *batchAppender
}

var _ eventstore.Store = (*Store)(nil)

// Open prepares a store. It connects at the first call only, so a server that is down is no error
// here.
func Open(cfg Config) (*Store, error) {
	if cfg.Logger == nil {
		return nil, errors.New("esdb: a logger is needed")
	}
	c, err := parseConnection(cfg.ConnectionString)
	if err != nil {
		return nil, fmt.Errorf("esdb: the connection string %w", err)
	}
	if cfg.Username != "" {
		c.conf.Username, c.conf.Password = cfg.Username, cfg.Password
	}
	if cfg.RootCAs != nil {
		c.conf.RootCAs = cfg.RootCAs
	}
	c.conf.Logger = driverLog(cfg.Logger)
	s := &Store{pool: newPool(c, max(cfg.Connections, 1), cfg.Logger)}
	if cfg.BatchAppends && !c.discover {
		// In a cluster the leader changes, so each append is a separate call there.
		s.batches = newBatchAppender(&c.conf, cfg.Logger)
	}
	return s, nil
}

// Close implements eventstore.Store.
func (s *Store) Close() error {
	if s.batches == nil {
		return s.pool.close()
	}
	return errors.Join(s.batches.close(), s.pool.close())
}

// driverLog passes the messages of the driver on at level debug: the driver logs a deleted stream
// as an error, and all other errors also reach the caller.
func driverLog(log *slog.Logger) driver.LoggingFunc {
	return func(level driver.LogLevel, format string, args ...any) {
		if log.Enabled(context.Background(), slog.LevelDebug) {
			log.Debug("event store driver", "level", level, "text", fmt.Sprintf(format, args...))
		}
	}
}

// toLeader sets the header that requires the leader. The driver intends to set it too, but does it
// in incoming metadata, which is not sent.
func toLeader(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "requires-leader", "true")
}

// Stats counts events of the connections of a store.
type Stats struct {
	// Connected counts the connections that were made. GivenUp counts those that failed or were
	// abandoned, because their server does not respond or is not the leader.
	Connected, GivenUp int64
	// Moved counts the connections to another server than the one before, such as to a new leader.
	Moved int64
}

// seen holds the counts of a pool, and the server of its newest connection.
type seen struct {
	Stats
	server string
}

// Stats returns the counts of the connections.
func (s *Store) Stats() Stats {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.pool.seen.Stats
}

func (p *pool) countConnected(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.Connected++
	if p.seen.server != "" && p.seen.server != l.server {
		p.seen.Moved++
	}
	p.seen.server = l.server
}
