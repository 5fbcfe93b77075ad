package esdb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/annals-project/annals/eventstore/backoff"
)

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
