package esdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore/backoff"
)

// link is one client of the driver, with one connection, and the number of its calls.
type link struct {
	slot int
	// client and server, its host:port, are set before ready is closed.
	client *driver.Client
	server string
	// ready is closed once the driver has found a server or has failed. In the second case failed is
	// set, and the client is never used.
	ready  chan struct{}
	failed error
	// entering counts the calls that have the client and do not have its connection yet. No call is
	// added once the client is retired.
	entering sync.WaitGroup
	// left ends, with an error, once the calls of the client are given up. leave ends it.
	left  context.Context
	leave context.CancelCauseFunc

	// The lock of the pool guards the following fields.
	calls   int
	retired bool
}

// pool holds the clients. During its first call the driver searches for a server, however long
// that takes and regardless of the contexts of its callers. So calls wait in acquire until a
// client is connected. A client that lost its server is retired: new calls get a new client, and
// the old one is closed after its last call, because closing it earlier would break that call. The
// driver does not close a connection that it replaces, so it must never make a second one: see
// watchLog.
type pool struct {
	conf   driver.Configuration
	logger *slog.Logger
	// leader finds the server of each new client; nil if conf names the only one.
	leader *finder
	// ctx ends when the pool is closed.
	ctx    context.Context
	cancel context.CancelFunc
	// redirected is set once a server named another one as the leader. The driver then connects to
	// that one, and may block calls meanwhile.
	redirected atomic.Bool
	// namedLeader is the address of that leader, nil before.
	namedLeader atomic.Pointer[string]
	slow        *slowCalls

	mu    sync.Mutex
	links []*link
	// open has the links and those that were retired and still have calls.
	open map[*link]bool
	next int
	seen seen
}

var (
	errClosed       = errors.New("event store was closed")
	errNotConnected = errors.New("no event store was found")
	// ErrCredentials is in the error of a call if the server does not know the user or the password.
	ErrCredentials = errors.New("the event store does not accept the credentials")
	// ErrUntrusted is in the error of a call if a certificate of the server is not trusted.
	ErrUntrusted = errors.New("the certificate of a server is not trusted")
)

func newPool(c connection, size int, log *slog.Logger) *pool {
	p := &pool{
		conf: c.conf, leader: newFinder(c), logger: log, links: make([]*link, size), open: map[*link]bool{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.slow = newSlowCalls(p.ctx, p.leaveOldLeader)
	return p
}

// acquire waits for a connected client; the clients take turns. The caller makes its call with
// callOn, and then releases the client.
func (p *pool) acquire(ctx context.Context) (*link, error) {
	for {
		l, entered, err := p.pick()
		if err != nil || entered {
			return l, err
		}
		select {
		case <-l.ready:
			if l.failed != nil {
				err = fmt.Errorf("%w: %w", errNotConnected, l.failed)
			}
		case <-l.left.Done(): // it is retired
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err == nil && p.enter(l) {
			return l, nil
		}
		p.release(l)
		if err != nil {
			return nil, err
		}
	}
}

// pick returns the next client. If that is connected, the call has entered it.
func (p *pool) pick() (l *link, entered bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil, false, errClosed
	}
	p.next = (p.next + 1) % len(p.links)
	if l = p.links[p.next]; l == nil {
		l = &link{slot: p.next, ready: make(chan struct{}), calls: 1}
		l.left, l.leave = context.WithCancelCause(context.Background())
		p.links[p.next] = l
		p.open[l] = true
		go p.connect(l)
	}
	l.calls++
	select {
	case <-l.ready:
		// The client is in its slot, so it is not retired.
		if l.failed == nil {
			l.entering.Add(1)
			return l, true, nil
		}
	default:
	}
	return l, false, nil
}

// enter reports whether a call may still use the client, and counts the call.
func (p *pool) enter(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.retired {
		return false
	}
	l.entering.Add(1)
	return true
}

// watchLog detects a lost connection from the driver's log. The driver logs a failed call before
// it forgets the connection of that call. A call that requested a connection in between would get
// a new one, and the old one could never be closed. So watchLog retires the client first, and
// calls that are entering it still get the old connection.
func (p *pool) watchLog(l *link) driver.LoggingFunc {
	forward := p.conf.Logger
	return func(level driver.LogLevel, format string, args ...any) {
		forward(level, format, args...)
		if level != driver.LogError || len(args) != 1 {
			return
		}
		if leader, ok := args[0].(driver.EndPoint); ok { // the error of the call does not name it
			address := leader.String()
			p.namedLeader.Store(&address)
		}
		if err, ok := args[0].(error); ok && status.Code(err) == codes.Unavailable {
			// The driver may log in a goroutine without a recover. The client is retired by now.
			defer recoverPanic(&err)
			p.retireAndWait(l, err)
		}
	}
}

// retireAndWait retires a client and waits until no call is entering it. That is soon: a connected
// client does not block entering calls.
func (p *pool) retireAndWait(l *link, err error) {
	p.retire(l, err)
	l.entering.Wait()
}

// connect finds the server of a client and connects to it. A panic is the error of the calls that
// wait for the client.
func (p *pool) connect(l *link) {
	defer close(l.ready)
	defer recoverPanic(&l.failed)
	defer p.release(l)
	if l.failed = p.findServer(l); l.failed != nil {
		text := l.failed.Error() // grpc and the driver pass only the text on
		switch {
		case strings.Contains(text, "x509: "):
			l.failed = fmt.Errorf("%w: %w", ErrUntrusted, l.failed)
		case strings.Contains(text, "code = "+codes.Unauthenticated.String()):
			l.failed = fmt.Errorf("%w: %w", ErrCredentials, l.failed)
		}
		p.retire(l, l.failed)
	} else {
		p.countConnected(l)
	}
}

// findServer makes the client and connects it. It reads the version of the server, which connects
// without a call to the log.
func (p *pool) findServer(l *link) (err error) {
	defer recoverPanic(&err)
	if err := p.makeClient(l); err != nil {
		return err
	}
	_, err = l.client.GetServerVersion()
	return err
}

func (p *pool) makeClient(l *link) (err error) {
	conf := p.conf
	conf.Logger = p.watchLog(l)
	if p.leader != nil {
		if conf.Address, err = p.leader.find(p.ctx); err != nil {
			return err
		}
		conf.MaxDiscoverAttempts = 1 // the leader may have changed by the next attempt
	}
	client, err := driver.NewClient(&conf)
	if err != nil {
		return fmt.Errorf("make an event store client: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.client, l.server = client, conf.Address
	return nil
}

func (p *pool) release(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.calls--; l.calls == 0 && l.retired {
		p.closeUnused(l)
	}
}

// handleError retires a client after an error that proves that its server is gone. It closes a
// client that the error ended at once, since calls that are entering it would otherwise never
// return.
func (p *pool) handleError(l *link, err error) {
	switch classify(err) {
	case unreachable, noLeader:
		p.retireServer(l, err)
	case notLeader:
		p.redirected.Store(true)
		if p.leader != nil {
			p.retireServer(l, err)
		}
	case cutOff:
		// Find the leader again before the next append, whatever the reason of the refusal.
		p.retire(l, err)
	case neverSent:
		p.retire(l, err)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.closeClient(l)
	default:
	}
}

// retireServer retires a client and, in a cluster, the others with the same server: repeated calls
// would only reach that server again.
func (p *pool) retireServer(l *link, err error) {
	p.retire(l, err)
	if p.leader == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.links {
		if other != nil && other.server == l.server {
			p.retireLocked(other, err)
		}
	}
}

func (p *pool) retire(l *link, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retireLocked(l, err)
}

// retireLocked is retire for a caller that holds the lock. It closes a client without calls at
// once.
func (p *pool) retireLocked(l *link, err error) {
	if l.retired {
		return
	}
	l.retired = true
	if p.links[l.slot] == l {
		p.links[l.slot] = nil
	}
	if l.calls == 0 {
		p.closeUnused(l)
	}
	if p.ctx.Err() == nil {
		p.seen.GivenUp++
		p.logger.Warn("event store connection given up", "server", l.server, "err", err)
	}
}

// closeUnused closes a client that is retired and has no calls. The caller holds the lock.
func (p *pool) closeUnused(l *link) {
	delete(p.open, l)
	p.closeClient(l)
}

// closeClient closes a client. The caller holds the lock. A second call does nothing.
func (p *pool) closeClient(l *link) {
	if l.client == nil { // it was never made
		return
	}
	if err := l.client.Close(); err != nil {
		p.logger.Warn("event store connection not closed", "err", err)
	}
}

func (p *pool) close() error {
	p.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range p.links {
		if l == nil {
			continue
		}
		l.retired = true
		p.links[i] = nil
		if l.calls == 0 {
			p.closeUnused(l)
		}
	}
	return nil
}

const (
	// slowAfter is how long a call waits for its server until the pool asks the other members who
	// leads. The keepalive of the transport notices a frozen server much later. slowAfter is also the
	// least time between two such questions.
	slowAfter = 2 * time.Second
	// questionTimeout bounds one question.
	questionTimeout = 2 * time.Second
)

// errLeftServer is in the error of a call whose server no longer leads.
var errLeftServer = errors.New("another member leads the cluster")

// slowCalls counts the calls that wait for their servers. While there are any, one goroutine calls
// ask, one time after the other.
type slowCalls struct {
	ctx   context.Context
	after time.Duration
	// ask finds out whether a server still leads, and acts on it.
	ask func(ctx context.Context, server string)

	mu sync.Mutex
	// servers has the number of slow calls to each server.
	servers map[string]int
	asking  bool
	// next is when the next question may be asked.
	next time.Time
}

func newSlowCalls(ctx context.Context, ask func(ctx context.Context, server string)) *slowCalls {
	return &slowCalls{ctx: ctx, after: slowAfter, ask: ask, servers: map[string]int{}}
}

// begin records that a call to a server begins. The caller calls end when the server has answered or
// the call has ended.
func (s *slowCalls) begin(server string) (end func()) {
	isSlow, ended := false, false // mu guards them
	timer := time.AfterFunc(s.after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if ended {
			return
		}
		isSlow = true
		s.servers[server]++
		if !s.asking {
			s.asking = true
			go s.askWhileSlow()
		}
	})
	return func() {
		if timer.Stop() {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if ended = true; !isSlow {
			return
		}
		if s.servers[server]--; s.servers[server] == 0 {
			delete(s.servers, server)
		}
	}
}

// askWhileSlow asks about the servers of slow calls until there are none.
func (s *slowCalls) askWhileSlow() {
	for {
		server, wait := s.nextQuestion()
		switch {
		case server != "":
			s.askOnce(server)
		case wait > 0:
			_ = backoff.Pause(s.ctx, wait, nil) // nextQuestion sees the end of the context
		default:
			return
		}
	}
}

// nextQuestion returns a server to ask about, or how long to wait for the next question. It returns neither
// if the asking ends.
func (s *slowCalls) nextQuestion() (server string, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.servers) == 0 || s.ctx.Err() != nil {
		s.asking = false
		return "", 0
	}
	if wait = time.Until(s.next); wait > 0 {
		return "", wait
	}
	s.next = time.Now().Add(s.after)
	for server = range s.servers {
		break // nearly always the only one
	}
	return server, 0
}

func (s *slowCalls) askOnce(server string) {
	var err error
	defer recoverPanic(&err) // a question that fails is asked again
	ctx, cancel := context.WithTimeout(s.ctx, questionTimeout)
	defer cancel()
	s.ask(ctx, server)
}

// watch records that a call on a client begins; see slowCalls.begin. Without a cluster there is
// nobody to ask.
func (p *pool) watch(l *link) (end func()) {
	if p.leader == nil {
		return func() {}
	}
	return p.slow.begin(l.server)
}

// leaveOldLeader gives up all connections to a server if another member leads. Their calls end, and
// so do their subscriptions.
func (p *pool) leaveOldLeader(ctx context.Context, server string) {
	leader := p.leader.successor(ctx, server)
	if leader == "" {
		return
	}
	p.leader.distrust(server)
	err := fmt.Errorf("%w: %s", errLeftServer, leader)
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.open {
		if l.server == server {
			p.retireLocked(l, err)
			l.leave(err)
		}
	}
}
