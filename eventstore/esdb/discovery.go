package esdb

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/annals-project/annals/eventstore/backoff"
)

// maxMembers is the most members of a cluster that a finder queries.
const maxMembers = 2 * maxHosts

var errNoLeader = errors.New("no leader was found")

// finder finds the leader of a cluster by gossip. The search of the driver queries the hosts one
// after the other, accepts a follower if the gossip shows no leader, trusts outdated gossip, and
// cannot be cancelled.
type finder struct {
	seeds   []string
	options []grpc.DialOption
	// timeout bounds the response of one host. A round queries all hosts; pause is the time between
	// rounds.
	timeout, pause time.Duration
	rounds         int

	mu sync.Mutex
	// members are the hosts that the last leader named. They are queried too, since the hosts of the
	// connection string may be gone.
	members []string
}

// newFinder returns nil for a connection without discovery.
func newFinder(c connection) *finder {
	if !c.discover {
		return nil
	}
	return &finder{
		seeds: c.hosts, options: dialOptions(&c.conf), rounds: c.conf.MaxDiscoverAttempts,
		timeout: time.Duration(c.conf.GossipTimeout) * time.Second,
		pause:   time.Duration(c.conf.DiscoveryInterval) * time.Millisecond,
	}
}

// find returns host:port of the leader. It makes a bounded number of rounds and ends with the
// context. The error names each host and its response in the last round.
func (f *finder) find(ctx context.Context) (leader string, err error) {
	pause := backoff.Backoff{First: f.pause, Longest: f.pause}
	for round := 1; ; round++ {
		if leader, err = f.round(ctx); err == nil || round >= f.rounds {
			return leader, err
		}
		if ended := pause.Wait(ctx); ended != nil {
			return "", fmt.Errorf("%w: %w", err, ended)
		}
	}
}

// answer is the response of a host about its cluster.
type answer struct {
	host string
	// leader is the live leader that the host knows, "" for none.
	leader  string
	members []string
	err     error
}

// round queries all hosts at once. A leader is one that names itself, because others may not have
// noticed its end. So a dead or frozen host delays a round only if no host is the leader.
func (f *finder) round(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	answers := make(chan answer, maxMembers)
	var asked []string
	ask := func(host string) {
		if len(asked) == maxMembers || slices.Contains(asked, host) {
			return
		}
		asked = append(asked, host)
		running.Go(func() { answers <- f.ask(ctx, host) })
	}
	for _, host := range append(slices.Clone(f.seeds), f.known()...) {
		ask(host)
	}
	problems := []error{errNoLeader}
	for got := 0; got < len(asked); got++ {
		a := <-answers
		switch {
		case a.err != nil:
			problems = append(problems, fmt.Errorf("%s: %w", a.host, a.err))
		case a.leader == "":
			problems = append(problems, fmt.Errorf("%s: knows no leader", a.host))
		case a.leader == a.host:
			f.learn(a.members)
			return a.leader, nil
		default:
			problems = append(problems, fmt.Errorf("%s: names %s", a.host, a.leader))
			ask(a.leader)
		}
	}
	return "", joinLine(problems)
}

// ask reads the gossip of one host.
func (f *finder) ask(ctx context.Context, host string) (a answer) {
	defer recoverPanic(&a.err)
	a.host = host
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	conn, err := grpc.NewClient(host, f.options...)
	if err != nil {
		a.err = err
		return a
	}
	info, err := gossip.NewGossipClient(conn).Read(ctx, &shared.Empty{})
	if a.err = errors.Join(err, conn.Close()); a.err != nil {
		return a
	}
	for _, m := range info.GetMembers() {
		address := net.JoinHostPort(
			m.GetHttpEndPoint().GetAddress(), strconv.FormatUint(uint64(m.GetHttpEndPoint().GetPort()), 10))
		if len(a.members) < maxHosts {
			a.members = append(a.members, address)
		}
		// If a view contains two leaders, the host is right about itself.
		if m.GetIsAlive() && m.GetState() == gossip.MemberInfo_Leader && a.leader != host {
			a.leader = address
		}
	}
	return a
}

func (f *finder) known() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members
}

func (f *finder) learn(members []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = members
}

// lineErrors is a list of errors on one line.
type lineErrors []error

// joinLine is errors.Join on one line, for a log.
func joinLine(all []error) error { return lineErrors(all) }

func (all lineErrors) Error() string {
	text := all[0].Error()
	for i, err := range all[1:] {
		text += []string{": ", "; "}[min(i, 1)] + err.Error()
	}
	return text
}

func (all lineErrors) Unwrap() []error { return all }

// dialOptions returns the dial options of the driver, for connections that this package makes
// itself.
func dialOptions(conf *driver.Configuration) []grpc.DialOption {
	transport := insecure.NewCredentials()
	var options []grpc.DialOption
	if !conf.DisableTLS {
		secure := &tls.Config{
			RootCAs:            conf.RootCAs,
			InsecureSkipVerify: conf.SkipCertificateVerification, // the connection string sets it
		}
		if conf.UserCertFile != "" {
			secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(conf.UserCertFile, conf.UserKeyFile)
				return &pair, err
			}
		}
		transport = credentials.NewTLS(secure)
		if conf.Username != "" {
			options = append(
				options,
				grpc.WithPerRPCCredentials(
					password("Basic "+base64.StdEncoding.EncodeToString([]byte(conf.Username+":"+conf.Password))),
				),
			)
		}
	}
	if conf.KeepAliveInterval >= 0 { // as the driver does: else a server that vanished is noticed by nobody
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: conf.KeepAliveInterval, Timeout: conf.KeepAliveTimeout, PermitWithoutStream: true,
		}))
	}
	return append(options, grpc.WithTransportCredentials(transport))
}

// password is sent with every call, over TLS only.
type password string

func (p password) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": string(p)}, nil
}

func (password) RequireTransportSecurity() bool { return true }
