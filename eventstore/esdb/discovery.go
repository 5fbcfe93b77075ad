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

// distrustTime is longer than a leader that is cut off takes to give up the lead.
const distrustTime = 30 * time.Second

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
	// distrustTime is how long an old leader is distrusted.
	distrustTime time.Duration

	mu sync.Mutex
	// members are the hosts that the last leader named. They are queried too, since the hosts of the
	// connection string may be gone.
	members []string
	// oldLeader is distrusted until a time.
	oldLeader string
	until     time.Time
}

// newFinder returns nil for a connection without discovery.
func newFinder(c connection) *finder {
	if !c.discover {
		return nil
	}
	return &finder{
		seeds: c.hosts, options: dialOptions(&c.conf), rounds: c.conf.MaxDiscoverAttempts,
		timeout:      time.Duration(c.conf.GossipTimeout) * time.Second,
		pause:        time.Duration(c.conf.DiscoveryInterval) * time.Millisecond,
		distrustTime: distrustTime,
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
	// undecided reports that the host shows several live leaders, and is none of them.
	undecided bool
	err       error
}

// query asks hosts at once, each of them once. It passes each answer to take, until take returns
// true or all have answered. take may ask more hosts.
func (f *finder) query(
	ctx context.Context, hosts []string, take func(a answer, ask func(hosts ...string)) (done bool),
) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	answers := make(chan answer, maxMembers)
	var asked []string
	ask := func(hosts ...string) {
		for _, host := range hosts {
			if len(asked) == maxMembers || slices.Contains(asked, host) {
				continue
			}
			asked = append(asked, host)
			running.Go(func() { answers <- f.ask(ctx, host) })
		}
	}
	ask(hosts...)
	for got := 0; got < len(asked); got++ {
		if take(<-answers, ask) {
			return
		}
	}
}

// round queries all hosts at once. A leader is one that names itself, because others may not have
// noticed its end. So a dead or frozen host delays a round only if no host is the leader. A host that
// is distrusted is the leader only if another one names it, too.
func (f *finder) round(ctx context.Context) (leader string, err error) {
	problems := []error{errNoLeader}
	distrusted := f.distrusted()
	var claim *answer
	isConfirmed := false
	f.query(ctx, f.hosts(), func(a answer, ask func(...string)) bool {
		switch {
		case a.err != nil:
			problems = append(problems, fmt.Errorf("%s: %w", a.host, a.err))
		case a.leader == "":
			problems = append(problems, fmt.Errorf("%s: knows no leader", a.host))
		case a.leader == a.host:
			claim, isConfirmed = &a, isConfirmed || a.host != distrusted
			problems = append(problems, fmt.Errorf("%s: names itself, and nobody else does", a.host))
		default:
			isConfirmed = isConfirmed || a.leader == distrusted
			problems = append(problems, fmt.Errorf("%s: names %s", a.host, a.leader))
			ask(a.leader)
		}
		return claim != nil && isConfirmed
	})
	if claim == nil || !isConfirmed {
		return "", lineErrors(problems)
	}
	f.learn(claim.members)
	return claim.host, nil
}

// successor asks the members of a cluster other than a server who leads. It returns the leader if
// that names itself and most of these members name it, else "". So neither a follower that has not
// noticed a change nor an old leader that is cut off is believed.
func (f *finder) successor(ctx context.Context, server string) (leader string) {
	namedBy, membersOf := map[string][]string{}, map[string][]string{}
	f.query(ctx, others(f.hosts(), server), func(a answer, ask func(...string)) bool {
		if a.err != nil || a.leader == "" || a.leader == server || a.undecided {
			return false
		}
		namedBy[a.leader] = append(namedBy[a.leader], a.host)
		if ask(a.leader); a.leader == a.host {
			membersOf[a.host] = others(a.members, server)
			ask(membersOf[a.host]...)
		}
		if isElected(namedBy[a.leader], membersOf[a.leader]) {
			leader = a.leader
		}
		return leader != ""
	})
	return leader
}

// isElected reports whether most members are among the hosts that name a leader.
func isElected(namedBy, members []string) bool {
	votes := 0
	for _, m := range members {
		if slices.Contains(namedBy, m) {
			votes++
		}
	}
	return 2*votes > len(members)
}

func others(hosts []string, server string) []string {
	return slices.DeleteFunc(slices.Clone(hosts), func(host string) bool { return host == server })
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
			a.undecided = address != host && (a.undecided || a.leader != "" && a.leader != address)
			a.leader = address
		}
	}
	return a
}

// hosts are those of the connection string and the members that the last leader named.
func (f *finder) hosts() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(slices.Clone(f.seeds), f.members...)
}

func (f *finder) learn(members []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = members
}

// distrust makes finds ignore for a while that a server names itself the leader: it may have been
// cut off and not have noticed that it lost the lead.
func (f *finder) distrust(server string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.oldLeader, f.until = server, time.Now().Add(f.distrustTime)
}

// distrusted returns the server that is distrusted now, "" for none.
func (f *finder) distrusted() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().After(f.until) {
		return ""
	}
	return f.oldLeader
}

// lineErrors is errors.Join on one line, for a log.
type lineErrors []error

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
