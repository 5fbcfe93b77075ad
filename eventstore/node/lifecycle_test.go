package node

import (
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/internal/runtest"
)

func TestMain(m *testing.M) {
	// The engine of expressions has a clock, which stops some time after the last match.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}

// A caller without the password, or without TLS, reads and writes nothing.
func TestAccess_UnknownCallers(t *testing.T) {
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
	as := func(user, password string) grpc.DialOption { return grpc.WithPerRPCCredentials(basic{user, password}) }
	tests := []struct {
		name    string
		options []grpc.DialOption
		want    codes.Code
	}{
		{"the password", []grpc.DialOption{tls(c.RootCAs), as(c.Username, c.Password)}, codes.OK},
		{"no credentials", []grpc.DialOption{tls(c.RootCAs)}, codes.PermissionDenied},
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
			if _, err := raw.tryAppend(runtest.Context(t), "s", anyRevision, newEvents(1)...); status.Code(err) != tt.want {
				t.Errorf("append: %v", err)
			}
			if _, _, err := raw.tryDelete("s", anyRevision); status.Code(err) != tt.want {
				t.Errorf("delete: %v", err)
			}
		})
	}
}

// The calls that a client makes before it sends credentials succeed: the version, the methods, the
// one member.
func TestDiscovery(t *testing.T) {
	n := startNode(t, memoryConfig())
	conn, err := grpc.NewClient(n.Connection().Addr,
		grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(n.Connection().RootCAs, "")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	methods, err := serverfeatures.NewServerFeaturesClient(conn).GetSupportedMethods(runtest.Context(t), &shared.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if methods.GetEventStoreServerVersion() != "24.10.4" || len(methods.GetMethods()) == 0 {
		t.Errorf("got %v", methods)
	}
	cluster, err := gossip.NewGossipClient(conn).Read(runtest.Context(t), &shared.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	m := cluster.GetMembers()
	if len(m) != 1 || m[0].GetState() != gossip.MemberInfo_Leader || !m[0].GetIsAlive() ||
		fmt.Sprintf("%s:%d", m[0].GetHttpEndPoint().GetAddress(), m[0].GetHttpEndPoint().GetPort()) != n.Connection().Addr {
		t.Errorf("got %v", m)
	}
	_, err = persistent.NewPersistentSubscriptionsClient(dial(t, n).conn).List(runtest.Context(t), &persistent.ListReq{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("persistent subscriptions: %v", err)
	}
}

// Close ends subscriptions, keeps what was acknowledged, and may be called again.
func TestClose_EndsSubscriptions(t *testing.T) {
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

// The node accepts the pings of the official client: every ten seconds, even without a call.
func TestKeepalive_Allowed(t *testing.T) {
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
