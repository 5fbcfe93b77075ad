package esdb_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node/clustertest"
	"github.com/annals-project/annals/eventstore/node/nodetest"
)

// soon are settings by which a client of a cluster notices a fault as fast as it can.
var soon = []string{"discoveryInterval=20", "keepAliveTimeout=1000"}

func openCluster(t *testing.T, connectionString string, connections int) *esdb.Store {
	t.Helper()
	return nodetest.Open(t, esdb.Config{ConnectionString: connectionString, Logger: quiet(), Connections: connections})
}

func TestCluster(t *testing.T) {
	c := clustertest.Start(t, 3)
	conformance(t, func(t *testing.T) eventstore.Store { return openCluster(t, c.ConnectionString(), 2) })
}

// The leader is found among hosts of which some are dead, and is the only member that is asked.
func TestDiscovery_DeadSeeds(t *testing.T) {
	c := clustertest.Start(t, 3)
	c.Kill(2)
	c.Lead(1)
	ctx := within(t, hangLimit)
	nobody := []string{"127.0.0.1:1", "127.0.0.1:2"}
	for name, hosts := range map[string][]string{
		"all":                       c.Addresses(),
		"the leader and dead ones":  append(nobody, c.Addresses()[1:]...),
		"a follower and dead ones":  append(nobody, c.Addresses()[0]),
		"a follower alone":          c.Addresses()[:1],
		"the leader alone":          c.Addresses()[1:2],
		"without a port, and later": append([]string{"127.0.0.1"}, c.Addresses()[1]),
	} {
		t.Run(name, func(t *testing.T) {
			before := c.Calls(1)
			store := openCluster(t, c.At(hosts), 2)
			for range 4 {
				if _, err := store.Head(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if got := c.Calls(1) - before; got != 4 {
				t.Errorf("%d of 4 calls came to the leader", got)
			}
		})
	}
	if got := c.Calls(0); got != 0 {
		t.Errorf("%d calls came to a follower", got)
	}
}

// The hosts of the connection string may all be gone: the client asks the members that it knows.
func TestDiscovery_SeedGone(t *testing.T) {
	c := clustertest.Start(t, 3)
	store, ctx := openCluster(t, c.At(c.Addresses()[:1], soon...), 1), within(t, hangLimit)
	if _, err := store.Head(ctx); err != nil {
		t.Fatal(err)
	}
	c.Kill(0)
	c.Lead(2)
	clustertest.Until(ctx, t, "another leader is found", func() bool {
		_, err := store.Head(ctx)
		if err != nil && !errors.Is(err, eventstore.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// A frozen member delays nobody: its answer would take a minute.
func TestDiscovery_FrozenFollower(t *testing.T) {
	c := clustertest.Start(t, 3)
	c.Freeze(1)
	ctx := within(t, hangLimit)
	for range 5 {
		store := openCluster(t, c.ConnectionString("gossipTimeout=60"), 1)
		if _, err := store.Head(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// While nobody leads, and while the others name a leader that is dead, no call gets an old answer.
func TestDiscovery_NoLeader(t *testing.T) {
	c := clustertest.Start(t, 3)
	store, ctx := openCluster(t, c.ConnectionString("maxDiscoverAttempts=2", "discoveryInterval=5"), 2), within(t, hangLimit)
	if _, err := store.Append(ctx, "a-1", eventstore.NoStream, oneEvent()); err != nil {
		t.Fatal(err)
	}
	unavailable := func(state string) {
		t.Helper()
		for what, call := range map[string]func() error{
			"head":      func() error { _, err := store.Head(ctx); return err },
			"log":       func() error { _, err := store.ReadAll(ctx, 0, 10); return err },
			"last":      func() error { _, _, err := store.ReadLast(ctx, "a-1"); return err },
			"subscribe": func() error { _, err := store.Subscribe(ctx, 0); return err },
			"append": func() error {
				_, err := store.Append(ctx, "a-1", 0, oneEvent())
				if !errors.Is(err, eventstore.ErrUnknown) {
					t.Errorf("%s: append: %v", state, err)
				}
				return err
			},
		} {
			err := call()
			if !errors.Is(err, eventstore.ErrUnavailable) {
				t.Errorf("%s: %s: %v", state, what, err)
			} else if text := err.Error(); strings.Contains(text, "\n") || strings.Contains(text, "sesame") {
				t.Errorf("%s: %s: not one line without the password: %q", state, what, text)
			}
		}
	}
	c.Lead(-1)
	unavailable("nobody leads")
	c.Lead(0)
	c.Kill(0)
	unavailable("the leader is dead and nobody noticed")
	c.Lead(1)
	if last, ok, err := store.ReadLast(ctx, "a-1"); err != nil || !ok || last.Revision != 0 {
		t.Errorf("with a leader: %+v, %t, %v", last, ok, err)
	}
}

func TestDiscovery_WrongCertificateOrPassword(t *testing.T) {
	c := clustertest.Start(t, 2)
	ctx := within(t, hangLimit)
	other, _, _ := nodetest.Files(t, "other.pem", "x")
	right := c.ConnectionString("maxDiscoverAttempts=1")
	for name, test := range map[string]struct{ connection, want string }{
		"another authority": {strings.ReplaceAll(right, url.QueryEscape(c.CAFile), other), "certificate"},
		"no authority":      {right[:strings.Index(right, "?")] + "?maxDiscoverAttempts=1", "certificate"},
		"another password":  {"esdb+discover://admin:wrong@" + right[strings.Index(right, "@127")+1:], "user and password"},
		"no password":       {"esdb+discover://" + right[strings.Index(right, "@127")+1:], "user and password"},
	} {
		t.Run(name, func(t *testing.T) {
			store := openCluster(t, test.connection, 1)
			_, err := store.Head(ctx)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") ||
				strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), "wrong@") {
				t.Errorf("head: %v, want a line with %q", err, test.want)
			}
			if got := errors.Is(err, esdb.ErrUntrusted); got != (test.want == "certificate") {
				t.Errorf("head: %v is ErrUntrusted: %t", err, got)
			}
			if _, err := store.Append(ctx, "a-1", eventstore.NoStream, oneEvent()); err == nil {
				t.Error("it appended")
			}
		})
	}
	if head := c.Node.Stats().Events; head != 0 {
		t.Errorf("%d events are stored", head)
	}
}
