package nodetest

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node"
)

// Start starts a node, which ends with the test. A node without a folder is in memory.
func Start(t testing.TB, cfg node.Config) *node.Node {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = "log"
		if cfg.FS == nil {
			cfg.FS = vfs.NewMem()
		}
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	n, err := node.Start(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatalf("start the node: %v", err)
	}
	CloseAtEnd(t, n)
	return n
}

// ConfigOf is what a client needs to connect to a node.
func ConfigOf(c node.Connection) esdb.Config {
	return esdb.Config{
		ConnectionString: c.ConnectionString(), Username: c.Username, Password: c.Password, RootCAs: c.RootCAs,
	}
}

// Open opens a store, which is closed at the end of the test.
func Open(t testing.TB, cfg esdb.Config) *esdb.Store {
	t.Helper()
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	store, err := esdb.Open(cfg)
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	CloseAtEnd(t, store)
	return store
}

// Store is a store over a node that starts for the test.
func Store(t testing.TB, cfg node.Config) *esdb.Store {
	t.Helper()
	return Open(t, ConfigOf(Start(t, cfg).Connection()))
}

// CloseAtEnd closes something at the end of the test. What was opened last is closed first.
func CloseAtEnd(t testing.TB, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}
