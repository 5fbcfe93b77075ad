package esdb_test

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/node"
)

func TestNode(t *testing.T) {
	conn := startNode(t)
	eventstoretest.Run(t, func(t *testing.T) eventstore.Store { return open(t, conn, 1) })
}

func TestNode_SeveralConnections(t *testing.T) {
	conn := startNode(t)
	eventstoretest.Run(t, func(t *testing.T) eventstore.Store { return open(t, conn, 3) })
}

// TestServer runs the same suite against a server or a cluster that is there already.
func TestServer(t *testing.T) {
	server := os.Getenv("ANNALS_TEST_ESDB")
	if server == "" {
		t.Skip("ANNALS_TEST_ESDB names no server")
	}
	eventstoretest.Run(t, func(t *testing.T) eventstore.Store {
		return closing(t, esdb.Config{ConnectionString: server, Logger: quiet(), Connections: 2})
	})
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func startNode(t testing.TB) node.Connection {
	t.Helper()
	n, err := node.Start(context.Background(), node.Config{Dir: "log", FS: vfs.NewMem(), Logger: quiet()})
	if err != nil {
		t.Fatalf("start the node: %v", err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close the node: %v", err)
		}
	})
	return n.Connection()
}

func config(conn node.Connection, connections int) esdb.Config {
	return esdb.Config{
		ConnectionString: conn.ConnectionString(), Username: conn.Username, Password: conn.Password, RootCAs: conn.RootCAs,
		Logger: quiet(), Connections: connections,
	}
}

func open(t *testing.T, conn node.Connection, connections int) *esdb.Store {
	t.Helper()
	return closing(t, config(conn, connections))
}

func closing(t *testing.T, cfg esdb.Config) *esdb.Store {
	t.Helper()
	store, err := esdb.Open(cfg)
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return store
}
