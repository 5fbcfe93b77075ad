package node

import (
	"crypto/tls"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// The tests named TestProtocol state what a genuine EventStoreDB 24.2.0 answers to a request. Each runs against a node
// of its own, or against the server that ANNALS_TEST_ESDB names by a connection string: of a cluster, its leader. They
// name streams by unused, since that server holds the streams of earlier runs.

// endpoint is a server of the protocol, and its administrator.
type endpoint struct {
	addr           string
	user, password string
	transport      credentials.TransportCredentials
	// secure is whether the server uses TLS and asks for a password. tls is then how HTTP clients trust it.
	secure bool
	tls    *tls.Config
	// own is nil if the server is not a node of the test.
	own *Node
}

// protocolServer returns the server that a test named TestProtocol asks. The configuration is that of the node; a
// named server has its own.
func protocolServer(t *testing.T, cfg Config) endpoint {
	t.Helper()
	if text := os.Getenv("ANNALS_TEST_ESDB"); text != "" {
		return namedServer(t, text)
	}
	n := startNode(t, cfg)
	c := n.Connection()
	s := endpoint{addr: c.Addr, user: c.Username, password: c.Password, transport: insecure.NewCredentials(), own: n}
	if c.RootCAs != nil {
		s.secure, s.tls = true, &tls.Config{RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12}
		s.transport = credentials.NewTLS(s.tls)
	}
	return s
}

func namedServer(t *testing.T, text string) endpoint {
	t.Helper()
	cfg, err := esdb.ParseConnectionString(text)
	if err != nil {
		t.Fatal(err)
	}
	s := endpoint{
		addr: cfg.Address, user: cfg.Username, password: cfg.Password, transport: insecure.NewCredentials(),
		secure: !cfg.DisableTLS,
	}
	if s.addr == "" && len(cfg.GossipSeeds) > 0 {
		s.addr = cfg.GossipSeeds[0].String()
	}
	s.addr = strings.TrimPrefix(strings.TrimPrefix(s.addr, "https://"), "http://")
	if _, _, err := net.SplitHostPort(s.addr); err != nil {
		t.Fatalf("ANNALS_TEST_ESDB: %v", err)
	}
	if s.secure {
		s.tls = &tls.Config{
			RootCAs: cfg.RootCAs, MinVersion: tls.VersionTLS12,
			InsecureSkipVerify: cfg.SkipCertificateVerification, //nolint:gosec // as the connection string asks
		}
		s.transport = credentials.NewTLS(s.tls)
	}
	return s
}

// dialAs connects as a user; without credentials if user is empty.
func (s endpoint) dialAs(t *testing.T, user, password string) client {
	t.Helper()
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(s.transport), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	}
	if s.secure && user != "" {
		options = append(options, grpc.WithPerRPCCredentials(basic{user, password}))
	}
	conn, err := grpc.NewClient(s.addr, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return client{t: t, StreamsClient: streams.NewStreamsClient(conn), conn: conn}
}

// dial connects as the administrator.
func (s endpoint) dial(t *testing.T) client { t.Helper(); return s.dialAs(t, s.user, s.password) }

// unused returns the name of a stream that no run has used.
func unused(name string) string { return name + "-" + uuid.NewString() }

// TestProtocol_MissingStream: a read of a stream that is not there succeeds, with one message that reports it.
func TestProtocol_MissingStream(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	if _, found, _, err := c.tryRead(ofStream(unused("missing"))); found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
}
