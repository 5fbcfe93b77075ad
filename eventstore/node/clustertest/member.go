package clustertest

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// Main runs a member and ends the process, if the process was started as one. TestMain calls it
// first.
func Main() {
	text := os.Getenv(setupVariable)
	if text == "" {
		return
	}
	if err := runMember(text); err != nil {
		fmt.Fprintln(os.Stderr, "cluster member:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// member is the process of one scripted member.
type member struct {
	gossip.UnimplementedGossipServer
	addr     string
	node     *grpc.ClientConn
	listener *listener

	mu           sync.Mutex
	script       Script
	changed      chan struct{} // closed at the next command
	loseRequests int
	loseAnswers  int
	timeOuts     timeOuts
	awaitTwins   int
	// commits are the appends that are being committed, while CommitTimeouts is set.
	commits   map[string]*commit
	calls     int
	questions int
	timedOut  int
}

// commit is an append that is being committed.
type commit struct {
	twin     chan struct{} // closed once an equal append was answered
	answered sync.Once
}

func runMember(text string) error {
	var s setup
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(s.Cert)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	node, err := grpc.NewClient(s.Node, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots})))
	if err != nil {
		return err
	}
	plain, err := new(net.ListenConfig).Listen(context.Background(), "tcp", s.Addr)
	if err != nil {
		return err
	}
	m := &member{
		addr: s.Addr, node: node, changed: make(chan struct{}), commits: map[string]*commit{},
		listener: &listener{Listener: plain, open: map[net.Conn]bool{}},
	}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}})),
		grpc.ForceServerCodecV2(newFrames()), grpc.MaxRecvMsgSize(maxMessage),
		grpc.UnknownServiceHandler(m.forward),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	gossip.RegisterGossipServer(server, m)
	served := make(chan error, 1)
	go func() { served <- server.Serve(m.listener) }()
	err = m.obey(os.Stdin, os.Stdout)
	server.Stop()
	return errors.Join(err, <-served, node.Close())
}

// obey carries out commands until there are no more, which is the end of the test.
func (m *member) obey(commands io.Reader, reports io.Writer) error {
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		m.mu.Lock()
		m.script = c.Script
		m.loseRequests += c.LoseRequests
		m.loseAnswers += c.LoseAnswers
		m.awaitTwins += c.AwaitTwins
		if c.TimeOuts.Writes > 0 {
			m.timeOuts = c.TimeOuts
		}
		close(m.changed)
		m.changed = make(chan struct{})
		r := report{Number: c.Number, Calls: m.calls, Questions: m.questions, TimedOut: m.timedOut}
		m.mu.Unlock()
		if c.Cut {
			m.listener.cut()
		}
		if err := json.NewEncoder(reports).Encode(r); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Read shows the cluster as the member knows it.
func (m *member) Read(context.Context, *shared.Empty) (*gossip.ClusterInfo, error) {
	s, _ := m.now()
	m.mu.Lock()
	m.questions++
	m.mu.Unlock()
	if s.Refuse {
		return nil, errNotReady
	}
	info := &gossip.ClusterInfo{}
	for _, address := range s.Members {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, err
		}
		state := gossip.MemberInfo_Follower
		switch {
		case address == s.Leader, address == m.addr && s.Claims:
			state = gossip.MemberInfo_Leader
		case s.Leader == "":
			state = gossip.MemberInfo_Unknown
		}
		info.Members = append(info.Members, &gossip.MemberInfo{
			TimeStamp: time.Now().UnixNano() / 100, State: state, IsAlive: !slices.Contains(s.Dead, address),
			HttpEndPoint: &gossip.EndPoint{Address: host, Port: uint32(number)},
		})
	}
	return info, nil
}

var errNotReady = status.Error(codes.Unavailable, "Server Is Not Ready")

// now is the script, and a channel that is closed once another one is in force.
func (m *member) now() (Script, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.script, m.changed
}

// lose reports whether the next write is to be lost at this point, and counts it.
func (m *member) lose(left *int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if *left == 0 {
		return false
	}
	*left--
	return true
}

// listener knows its open connections, so that they can be broken.
type listener struct {
	net.Listener
	mu   sync.Mutex
	open map[net.Conn]bool
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = true
	return &tracked{c, l}, nil
}

func (l *listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.Close() // grpc may have closed it already
	}
}

type tracked struct {
	net.Conn
	from *listener
}

// Close implements net.Conn.
func (t *tracked) Close() error {
	t.from.mu.Lock()
	delete(t.from.open, t.Conn)
	t.from.mu.Unlock()
	return t.Conn.Close()
}
