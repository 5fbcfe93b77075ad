package esdb_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node/clustertest"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
)

func TestCheckConnectionString_Accepted(t *testing.T) {
	ca, key, _ := nodetest.Files(t, "ca.pem", "x")
	for _, text := range []string{
		"esdb://localhost",
		"esdb://localhost/?tls=false",
		"esdb://h1:2113,h2,h3:1?tls=true",
		"esdb+discover://h1",
		"esdb+discover://admin:a%2Cb%40c%23@h1:2113,h2:2113,h3:2113?tls=true&tlsCAFile=" + ca,
		"esdb+discover://admin:a,b:c@h1:2113,h2:2113?tlsVerifyCert=false",
		"esdb+discover://[::1]:2113,[fe80::1]?keepAliveInterval=10000&keepAliveTimeout=5000",
		"esdb://h?userCertFile=" + ca + "&userKeyFile=" + key,
		"esdb://h?MAXDISCOVERATTEMPTS=3&discoveryInterval=0&gossipTimeout=1&defaultDeadline=5000&nodePreference=Leader",
	} {
		if err := esdb.CheckConnectionString(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A wrong connection string is one line that names the setting and no part of the credentials.
func TestCheckConnectionString_Refused(t *testing.T) {
	ca, _, _ := nodetest.Files(t, "ca.pem", "x")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	runtest.Must(t, os.WriteFile(empty, nil, 0o600))
	for text, want := range map[string]string{
		"":                                      "begins with neither",
		"http://h":                              "begins with neither",
		"esdb://":                               "host as number 1 of 1",
		"esdb+discover://h1,,h2":                "host as number 2 of 3",
		"esdb://h1,h2:0":                        "port at host 2 of 2",
		"esdb://h1:70000":                       "port at host 1 of 1",
		"esdb://h1:2113/path":                   "a / after the hosts",
		"esdb://admin:sec/ret@h":                "a / after the hosts",
		"esdb://admin:sec#ret@h":                "%23",
		"esdb://admin:sec?ret@h":                "port at host 1 of 1",
		"esdb://admin:21?sec-ret@h":             "unknown setting",
		"esdb://admin:sec%zzret@h":              "%25",
		"esdb://admin@h":                        "no password",
		"esdb://:secret@h":                      "no user",
		"esdb://admin:secret@h?tls=false":       "TLS only",
		"esdb://h?tlsCaFil=x":                   `unknown setting "tlsCaFil"`,
		"esdb://h?tls=yes":                      "wrong tls: want true or false",
		"esdb://h?tls=true&TLS=false":           "tls twice",
		"esdb://h?tlsCAFile=/nowhere/ca.pem":    "/nowhere/ca.pem",
		"esdb://h?tlsCAFile=" + empty:           "holds no certificate",
		"esdb://h?userCertFile=" + ca:           "userKeyFile",
		"esdb://h?userCertFile=a&userKeyFile=b": "userCertFile or userKeyFile",
		"esdb://h?nodePreference=follower":      "leader",
		"esdb://h?keepAliveInterval=-1":         "wrong keepAliveInterval: want a number from 0 to 60000",
		"esdb://h?maxDiscoverAttempts=0":        "wrong maxDiscoverAttempts",
		"esdb://h?defaultDeadline=soon":         "wrong defaultDeadline",
		"esdb://h?gossipTimeout=5s":             "wrong gossipTimeout",
		"esdb://h?a=%zz":                        "name=value",
		"esdb://" + strings.Repeat("h,", 40):    "more than 32",
	} {
		err := esdb.CheckConnectionString(text)
		if err == nil {
			t.Errorf("%s was accepted", text)
			continue
		}
		if got := err.Error(); !strings.Contains(got, want) || strings.Contains(got, "\n") || strings.Contains(got, "sec") ||
			strings.Contains(got, "ret@") {
			t.Errorf("%s: %q, want a line with %q", text, got, want)
		}
	}
}

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
				runtest.Must(t, errorOf(store.Head(ctx)))
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
	runtest.Must(t, errorOf(store.Head(ctx)))
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
		runtest.Must(t, errorOf(store.Head(ctx)))
	}
}

// While nobody leads, and while the others name a leader that is dead, no call gets an old answer.
func TestDiscovery_NoLeader(t *testing.T) {
	c := clustertest.Start(t, 3)
	store, ctx := openCluster(t, c.ConnectionString("maxDiscoverAttempts=2", "discoveryInterval=5"), 2), within(t, hangLimit)
	runtest.Must(t, errorOf(store.Append(ctx, "a-1", eventstore.NoStream, oneEvent())))
	unavailable := func(state string) {
		t.Helper()
		for what, call := range map[string]func() error{
			"head":      func() error { _, err := store.Head(ctx); return err },
			"log":       func() error { _, err := store.ReadAll(ctx, 0, 10); return err },
			"last":      func() error { _, _, err := store.ReadLast(ctx, "a-1"); return err },
			"subscribe": func() error { _, err := store.Subscribe(ctx, 0); return err },
			"append": func() error {
				_, err := store.Append(ctx, "a-1", 0, oneEvent())
				wantError(t, state+": append", err, eventstore.ErrUnknown)
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

// reconnects is how often the connections are cut: ANNALS_RECONNECTS, or few.
func reconnects(t *testing.T) int {
	t.Helper()
	text := os.Getenv("ANNALS_RECONNECTS")
	if text == "" {
		return 60
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 20 {
		t.Fatalf("ANNALS_RECONNECTS is %q, want a number from 20 on", text)
	}
	return n
}

// TestReconnects_NoLeak cuts all connections again and again while many calls are on
// them, and then counts what there is of connections, goroutines and memory.
func TestReconnects_NoLeak(t *testing.T) {
	const connections, callers, early = 2, 8, 10
	rounds := reconnects(t)
	conn := startNode(t)
	w := nodetest.NewWire(t, conn.Addr)
	conn.Addr = w.Addr()
	store := open(t, conn, connections)
	ctx := within(t, hangLimit+time.Duration(rounds)*time.Second)

	working, stop := context.WithCancel(ctx)
	defer stop()
	var done atomic.Int64
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			stream, at := "account-"+uuid.NewString(), eventstore.NoStream
			for working.Err() == nil {
				events := []eventstore.Proposed{{ID: uuid.New(), Type: "thing.done.v1", Data: []byte(`{}`), Meta: []byte(`{}`)}}
				appended, err := eventstore.AppendUntilKnown(ctx, store, stream, at, events)
				if err != nil || appended.Revision != at+1 {
					t.Errorf("append at %d: %+v, %v", at, appended, err)
					return
				}
				at++
				if _, _, err := store.ReadLast(ctx, stream); err != nil && !errors.Is(err, eventstore.ErrUnavailable) {
					t.Errorf("read: %v", err)
					return
				}
				done.Add(1)
			}
		})
	}
	running.Go(func() { follow(working, t, store) })

	var before resources
	for round := range rounds {
		next := done.Load() + callers
		until(ctx, t, "calls go on", func() bool { return done.Load() >= next })
		if round == early {
			before = settled(ctx, t, w, connections)
		}
		w.Cut()
	}
	next := done.Load() + callers
	until(ctx, t, "calls go on", func() bool { return done.Load() >= next })
	after := settled(ctx, t, w, connections)
	_, ever := w.Clients()
	t.Logf("%d cuts, %d connections; goroutines %d, then %d; heap %d KiB, then %d KiB", rounds, ever, before.goroutines,
		after.goroutines, before.heap>>10, after.heap>>10)
	if ever < rounds {
		t.Errorf("only %d connections in %d rounds", ever, rounds)
	}
	// Calls come and go, and each has some goroutines on either side.
	if grown := after.goroutines - before.goroutines; grown > 6*callers {
		t.Errorf("%d goroutines more after %d rounds", grown, rounds-early)
	}
	if grown := int64(after.heap) - int64(before.heap); grown > 16<<20 {
		t.Errorf("%d KiB more memory after %d rounds", grown>>10, rounds-early)
	}
	stop()
	running.Wait()
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	until(ctx, t, "all connections are closed", func() bool { open, _ := w.Clients(); return open == 0 })
}

// follow subscribes whenever it must, and proves that every event comes once and in order.
func follow(ctx context.Context, t *testing.T, store *esdb.Store) {
	after := eventstore.Position(0)
	last := map[string]eventstore.Revision{}
	for ctx.Err() == nil {
		sub, err := store.Subscribe(ctx, after)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, eventstore.ErrUnavailable) {
				t.Errorf("subscribe: %v", err)
			}
			continue
		}
		for {
			r, err := sub.Next(ctx)
			if err != nil {
				if ctx.Err() == nil && !errors.Is(err, eventstore.ErrUnavailable) {
					t.Errorf("follow: %v", err)
				}
				break
			}
			if before, known := last[r.Stream]; r.Position <= after || known && r.Revision != before+1 ||
				!known && r.Revision != 0 {
				t.Errorf("event %d of %s at %d came after event %d, at %d", r.Revision, r.Stream, r.Position, before, after)
			}
			after, last[r.Stream] = r.Position, r.Revision
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	}
}

type resources struct {
	goroutines int
	heap       uint64
}

// settled waits until no more connections than expected are open, and counts. The subscription may
// still use a client that was retired, and grpc may have opened its connection again.
func settled(ctx context.Context, t *testing.T, w *nodetest.Wire, connections int) resources {
	t.Helper()
	until(
		ctx, t, "no connection is open that nobody uses",
		func() bool { open, _ := w.Clients(); return open <= connections+1 },
	)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return resources{goroutines: runtime.NumGoroutine(), heap: m.HeapAlloc}
}

// until waits for something to become true.
func until(ctx context.Context, t *testing.T, what string, happened func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}
