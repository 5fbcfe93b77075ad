package esdb_test

import (
	"log/slog"
	"os"
	"testing"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
)

func TestMemory(t *testing.T) {
	conformance(t, func(*testing.T) eventstore.Store { return eventstoretest.NewMemory() })
}

func TestMemory_Scavenge(t *testing.T) {
	store := eventstoretest.NewMemory()
	conformsInScavenge(t, store, store.Scavenge)
}

func TestNode(t *testing.T) {
	conn := startNode(t)
	conformance(t, func(t *testing.T) eventstore.Store { return open(t, conn, 1) })
}

func TestNode_SeveralConnections(t *testing.T) {
	conn := startNode(t)
	conformance(t, func(t *testing.T) eventstore.Store { return open(t, conn, 3) })
}

func TestNode_Scavenge(t *testing.T) {
	n := nodetest.Start(t, node.Config{})
	conformsInScavenge(t, open(t, n.Connection(), 1), n.Scavenge)
}

// TestServer runs the same suite against a server or a cluster that is there already.
func TestServer(t *testing.T) {
	server := os.Getenv("ANNALS_TEST_ESDB")
	if server == "" {
		t.Skip("ANNALS_TEST_ESDB names no server")
	}
	conformance(t, func(t *testing.T) eventstore.Store {
		return nodetest.Open(t, esdb.Config{ConnectionString: server, Logger: quiet(), Connections: 2})
	})
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func startNode(t testing.TB) node.Connection {
	t.Helper()
	return nodetest.Start(t, node.Config{}).Connection()
}

func config(conn node.Connection, connections int) esdb.Config {
	cfg := nodetest.ConfigOf(conn)
	cfg.Logger, cfg.Connections = quiet(), connections
	return cfg
}

func open(t *testing.T, conn node.Connection, connections int) *esdb.Store {
	t.Helper()
	return nodetest.Open(t, config(conn, connections))
}
