// Package esdb keeps the log in EventStoreDB: in a cluster, or in the node that Annals carries along.
//
// It is the only package that knows the driver. What the driver leaves to be desired is made good here: it never sends
// requires-leader, it blocks on its own connection set-up whatever the context says, a client whose discovery failed stays
// dead for ever, and most refusals reach the caller as "unknown" (see refusal).
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

// Config says where the server is and how Annals makes itself known to it.
type Config struct {
	// ConnectionString is the usual "esdb://host:2113?tls=true" or "esdb+discover://…"; what stands below comes on top of it.
	ConnectionString string
	// Username and Password are sent only over TLS; empty means those of the connection string.
	Username string
	Password string
	// RootCAs are whom to trust besides what the connection string names; nil changes nothing.
	RootCAs *x509.CertPool
	Logger  *slog.Logger
	// Connections is how many connections share the calls, at least 1.
	Connections int
	// Together sends small appends over one common call, where the address names one server and that takes them so. They are
	// the same appends, with the same answers, for a fraction of the processor time.
	Together bool
}

// Store is an eventstore.Store over EventStoreDB.
type Store struct {
	pool *pool
	// together is nil where every append is a call.
	together *together
}

var _ eventstore.Store = (*Store)(nil)

// Open prepares a store. It connects at the first call only, so a server that is down is no error here.
func Open(cfg Config) (*Store, error) {
	if cfg.Logger == nil {
		return nil, errors.New("esdb: a logger is needed")
	}
	conf, err := driver.ParseConnectionString(cfg.ConnectionString)
	if err != nil {
		// The driver's error would quote the string, and with it a password.
		return nil, errors.New("esdb: the connection string cannot be read")
	}
	if cfg.Username != "" {
		conf.Username, conf.Password = cfg.Username, cfg.Password
	}
	if cfg.RootCAs != nil {
		conf.RootCAs = cfg.RootCAs
	}
	conf.Logger = driverLog(cfg.Logger)
	if err := conf.Validate(); err != nil {
		return nil, fmt.Errorf("esdb: %w", err)
	}
	s := &Store{pool: newPool(*conf, max(cfg.Connections, 1), cfg.Logger)}
	if cfg.Together {
		s.together = newTogether(conf, cfg.Logger)
	}
	return s, nil
}

// Close implements eventstore.Store.
func (s *Store) Close() error {
	if s.together == nil {
		return s.pool.close()
	}
	return errors.Join(s.together.close(), s.pool.close())
}

// driverLog hands on what the driver has to say. All of it is for debugging: it calls a deleted stream an error, and what
// matters of the rest reaches the caller.
func driverLog(log *slog.Logger) driver.LoggingFunc {
	return func(level driver.LogLevel, format string, args ...any) {
		if log.Enabled(context.Background(), slog.LevelDebug) {
			log.Debug("event store driver", "level", level, "text", fmt.Sprintf(format, args...))
		}
	}
}

// toLeader asks for the leader. The driver means to do so itself, but puts the header where only servers look.
func toLeader(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "requires-leader", "true")
}
