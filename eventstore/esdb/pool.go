package esdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/annals-project/annals/eventstore"
)

// link is one client of the driver, which is one connection, and how many calls are on it.
type link struct {
	client  *driver.Client
	slot    int
	calls   int
	retired bool
}

// pool holds the clients. A client that lost its server is retired: new calls get a new one, and it is closed when its
// last call has ended, since the driver neither closes the connection that it leaves nor survives a close during a call.
type pool struct {
	conf driver.Configuration
	log  *slog.Logger

	mu     sync.Mutex
	links  []*link
	turn   int
	closed bool
}

var errClosed = errors.New("event store was closed")

func newPool(conf driver.Configuration, size int, log *slog.Logger) *pool {
	return &pool{conf: conf, log: log, links: make([]*link, size)}
}

func (p *pool) acquire() (*link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	p.turn = (p.turn + 1) % len(p.links)
	l := p.links[p.turn]
	if l == nil {
		conf := p.conf
		client, err := driver.NewClient(&conf)
		if err != nil {
			return nil, fmt.Errorf("make an event store client: %w", err)
		}
		l = &link{client: client, slot: p.turn}
		p.links[p.turn] = l
	}
	l.calls++
	return l, nil
}

func (p *pool) release(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.calls--; l.calls == 0 && l.retired {
		p.drop(l)
	}
}

// judge retires a client after an error that says that its server is gone. A client that is dead is closed at once:
// calls that wait within it would wait for ever otherwise.
func (p *pool) judge(l *link, err error) {
	why := refusal(err)
	if why != unreachable && why != neverSent && why != noLeader {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !l.retired {
		l.retired = true
		if p.links[l.slot] == l {
			p.links[l.slot] = nil
		}
		p.log.Warn("event store connection given up", "err", err)
	}
	if why == neverSent {
		p.drop(l)
	}
}

// drop closes a client; closing twice does nothing.
func (p *pool) drop(l *link) {
	if err := l.client.Close(); err != nil {
		p.log.Warn("event store connection not closed", "err", err)
	}
}

func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for i, l := range p.links {
		if l != nil {
			p.drop(l)
			p.links[i] = nil
		}
	}
	return nil
}

// tries is how often a call is made that certainly did not reach a server that could answer it.
const tries = 3

// do makes one call. It returns with the context, also while the driver still waits for a connection, and it makes
// the call again where the error proves that nothing was done; again says of which other errors that is true.
func do[T any](ctx context.Context, p *pool, again func(kind) bool, call func(context.Context, *driver.Client) (T, error)) (T, error) {
	var zero T
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return zero, err
		}
		value, err := once(ctx, p, call)
		if err == nil {
			return value, nil
		}
		why := refusal(err)
		if try == tries || !(why == neverSent || why == notLeader || why == noLeader || again(why)) {
			return zero, err
		}
	}
}

func once[T any](ctx context.Context, p *pool, call func(context.Context, *driver.Client) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var zero T
	l, err := p.acquire()
	if err != nil {
		return zero, err
	}
	answers := make(chan answer, 1)
	go func() {
		defer p.release(l)
		value, err := guarded(toLeader(ctx), l.client, call)
		p.judge(l, err)
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return zero, context.Cause(ctx)
	}
}

// guarded turns a panic of the driver into an error: it panics on answers that it does not expect, and when it was closed during a call.
func guarded[T any](ctx context.Context, c *driver.Client, call func(context.Context, *driver.Client) (T, error)) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: driver panicked: %v", eventstore.ErrUnavailable, p)
		}
	}()
	return call(ctx, c)
}
