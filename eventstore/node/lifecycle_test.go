package node

import (
	"bufio"
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// holdsFolder names the folder that a copy of this test program is to keep open.
const holdsFolder = "NODE_TEST_HOLDS_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdsFolder); dir != "" {
		holdFolder(dir)
		return
	}
	// The engine of expressions has a clock, which stops some time after the last match.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}

// holdFolder keeps a node open until its standard input ends.
func holdFolder(dir string) {
	n, err := Start(context.Background(), Config{Dir: dir})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("open")
	buf := make([]byte, 1)
	for {
		if _, err := os.Stdin.Read(buf); err != nil {
			break
		}
	}
	if err := n.Close(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// A folder that is in use is one clear line, whether this process or another one uses it; afterwards it is free.
func TestFolderInUse(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, Config{Dir: dir, FS: vfs.Default})
	c := dial(t, n)
	c.append("s", none, newEvents(1)...)
	want := "data folder " + dir + " is in use by another process"
	if second, err := Start(t.Context(), Config{Dir: dir}); err == nil || err.Error() != want {
		t.Fatalf("second start: %v, %v", second, err)
	}
	other := exec.CommandContext(t.Context(), os.Args[0])
	other.Env = append(os.Environ(), holdsFolder+"="+dir)
	out, err := other.Output()
	if err == nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("another process: %q, %v", out, err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}

	other = exec.CommandContext(t.Context(), os.Args[0])
	other.Env = append(os.Environ(), holdsFolder+"="+dir)
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() || lines.Text() != "open" {
		t.Fatalf("another process: %q, %v", lines.Text(), lines.Err())
	}
	if second, err := Start(t.Context(), Config{Dir: dir}); err == nil || err.Error() != want {
		t.Errorf("while another process has it: %v, %v", second, err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		t.Errorf("another process: %s", lines.Text())
	}
	if err := other.Wait(); err != nil {
		t.Fatal(err)
	}
	again := dial(t, startNode(t, Config{Dir: dir, FS: vfs.Default}))
	if got := again.read(ofAll()); len(got) != 1 {
		t.Errorf("after reopening: %d events", len(got))
	}
}

// A folder that cannot be made is not taken for one in use.
func TestFolderThatCannotBe(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Config{Dir: file}); err == nil || strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v", err)
	}
}

// Whoever does not know the password, or does not speak TLS, reads and writes nothing.
func TestCallersAreKnown(t *testing.T) {
	n := startNode(t, memoryConfig())
	other := startNode(t, memoryConfig())
	c := n.Connection()
	if c.Password == other.Connection().Password || c.Username != "admin" || len(c.Password) < 20 {
		t.Fatalf("user %q with a password of %d bytes", c.Username, len(c.Password))
	}
	if s := c.ConnectionString(); s != "esdb://"+c.Addr || strings.Contains(s, c.Password) {
		t.Errorf("connection string %s", s)
	}
	tls := func(pool *x509.CertPool) grpc.DialOption {
		return grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(pool, ""))
	}
	as := func(user, password string) grpc.DialOption {
		return grpc.WithPerRPCCredentials(basic{user, password})
	}
	tests := []struct {
		name    string
		options []grpc.DialOption
		want    codes.Code
	}{
		{"the password", []grpc.DialOption{tls(c.RootCAs), as(c.Username, c.Password)}, codes.OK},
		{"no credentials", []grpc.DialOption{tls(c.RootCAs)}, codes.Unauthenticated},
		{"another password", []grpc.DialOption{tls(c.RootCAs), as(c.Username, other.Connection().Password)}, codes.Unauthenticated},
		{"another user", []grpc.DialOption{tls(c.RootCAs), as("root", c.Password)}, codes.Unauthenticated},
		{"an empty password", []grpc.DialOption{tls(c.RootCAs), as(c.Username, "")}, codes.Unauthenticated},
		{"another node's certificate", []grpc.DialOption{tls(other.Connection().RootCAs), as(c.Username, c.Password)}, codes.Unavailable},
		{"no TLS", []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, codes.Unavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conn, err := grpc.NewClient(c.Addr, tt.options...)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
			}()
			raw := client{t: t, StreamsClient: streams.NewStreamsClient(conn)}
			if _, _, _, err := raw.tryRead(ofAll()); status.Code(err) != tt.want {
				t.Errorf("read: %v", err)
			}
			if _, err := raw.tryAppend(testContext(t), "s", anyRevision, newEvents(1)...); status.Code(err) != tt.want {
				t.Errorf("append: %v", err)
			}
			if _, _, err := raw.tryDelete("s", anyRevision); status.Code(err) != tt.want {
				t.Errorf("delete: %v", err)
			}
		})
	}
}

// What a client asks before it sends credentials is answered: the version, the methods, the one member.
func TestDiscovery(t *testing.T) {
	n := startNode(t, memoryConfig())
	conn, err := grpc.NewClient(n.Connection().Addr, grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(n.Connection().RootCAs, "")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	methods, err := serverfeatures.NewServerFeaturesClient(conn).GetSupportedMethods(testContext(t), &shared.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if methods.GetEventStoreServerVersion() != "24.10.4" || len(methods.GetMethods()) == 0 {
		t.Errorf("got %v", methods)
	}
	cluster, err := gossip.NewGossipClient(conn).Read(testContext(t), &shared.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	m := cluster.GetMembers()
	if len(m) != 1 || m[0].GetState() != gossip.MemberInfo_Leader || !m[0].GetIsAlive() ||
		fmt.Sprintf("%s:%d", m[0].GetHttpEndPoint().GetAddress(), m[0].GetHttpEndPoint().GetPort()) != n.Connection().Addr {
		t.Errorf("got %v", m)
	}
	_, err = persistent.NewPersistentSubscriptionsClient(dial(t, n).conn).List(testContext(t), &persistent.ListReq{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("persistent subscriptions: %v", err)
	}
}

// Close ends subscriptions, keeps what was acknowledged, and may be called again.
func TestCloseEndsSubscriptions(t *testing.T) {
	cfg := memoryConfig()
	n := startNode(t, cfg)
	c := dial(t, n)
	s := c.subscribe(ofAll())
	s.caughtUp()
	c.append("s", none, newEvents(2)...)
	s.event()
	s.event()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.call.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("subscription: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if got := dial(t, startNode(t, cfg)).read(ofStream("s")); len(got) != 2 {
		t.Errorf("%d events after the restart", len(got))
	}
}

// Positions go on after a restart, also where the newest events were a deleted stream's.
func TestPositionsGoOnAfterRestart(t *testing.T) {
	cfg := memoryConfig()
	head := uint64(0)
	for i := range 4 {
		n := startNode(t, cfg)
		c := dial(t, n)
		name := fmt.Sprintf("s%d", i)
		_, position := c.append(name, none, newEvents(3)...)
		if position <= head {
			t.Fatalf("position %d after %d", position, head)
		}
		if i%2 == 1 {
			position = c.tombstone(name, anyRevision)
			scavenge(t, n)
		}
		head = position
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The official client pings every ten seconds, also while nothing is under way; the node lets it.
func TestKeepaliveIsAllowed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes longer than a minute: pings are rare")
	}
	t.Parallel()
	n := startNode(t, memoryConfig())
	c := officialClient(t, n)
	sub, err := c.SubscribeToAll(t.Context(), subscribeFromStart)
	if err != nil {
		t.Fatal(err)
	}
	if sub.Recv().CaughtUp == nil {
		t.Fatal("not caught up")
	}
	dropped := make(chan error, 1)
	go func() {
		if e := sub.Recv().SubscriptionDropped; e != nil {
			dropped <- e.Error
		}
		close(dropped)
	}()
	select {
	case err := <-dropped:
		t.Errorf("an idle subscription was dropped: %v", err)
	case <-time.After(35 * time.Second):
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	<-dropped
}
