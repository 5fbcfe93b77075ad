package esdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// link is one client of the driver, which is one connection, and how many calls are on it.
type link struct {
	client *driver.Client
	slot   int
	// ready is closed once the driver found a server, or failed says that it found none, which is the end of the client.
	ready  chan struct{}
	failed error
	// entering are the calls that were given the client and have not got its connection yet. None is added once it is retired.
	entering sync.WaitGroup

	// Under the lock of the pool:
	calls   int
	retired bool
}

// pool holds the clients. The driver searches for a server at the first call, for as long as that takes and whatever the contexts of
// the calls say; so calls wait outside until it has one. A client that lost its server is retired: new calls get a new client, and it is
// closed when its last call has ended, since the driver neither closes the connection that it leaves nor bears being closed during a call.
// So the driver must never make a second connection: see leave.
type pool struct {
	conf driver.Configuration
	log  *slog.Logger
	// done ends when the pool is closed.
	done context.Context
	end  context.CancelFunc
	// redirected is set once a server named another one as the leader: the driver then goes there, and may hold calls meanwhile.
	redirected atomic.Bool

	mu    sync.Mutex
	links []*link
	turn  int
}

var (
	errClosed       = errors.New("event store was closed")
	errNotConnected = errors.New("no event store was found")
)

func newPool(conf driver.Configuration, size int, log *slog.Logger) *pool {
	p := &pool{conf: conf, log: log, links: make([]*link, size)}
	p.done, p.end = context.WithCancel(context.Background())
	return p
}

// acquire waits for a connected client; the clients take turns. The caller enters it with on, and releases it.
func (p *pool) acquire(ctx context.Context) (*link, error) {
	for {
		l, entered, err := p.next()
		if err != nil || entered {
			return l, err
		}
		select {
		case <-l.ready:
			if l.failed != nil {
				err = fmt.Errorf("%w: %w", errNotConnected, l.failed)
			}
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

// next is the client whose turn it is; it is entered at once where it is connected.
func (p *pool) next() (l *link, entered bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done.Err() != nil {
		return nil, false, errClosed
	}
	p.turn = (p.turn + 1) % len(p.links)
	if l = p.links[p.turn]; l == nil {
		l = &link{slot: p.turn, ready: make(chan struct{}), calls: 1}
		conf := p.conf
		conf.Logger = p.listen(l)
		if l.client, err = driver.NewClient(&conf); err != nil {
			return nil, false, fmt.Errorf("make an event store client: %w", err)
		}
		p.links[p.turn] = l
		go p.connect(l)
	}
	l.calls++
	select {
	case <-l.ready:
		// It stands in its slot, so it is not retired.
		if l.failed == nil {
			l.entering.Add(1)
			return l, true, nil
		}
	default:
	}
	return l, false, nil
}

// enter says whether a call may still go into a client.
func (p *pool) enter(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.retired {
		return false
	}
	l.entering.Add(1)
	return true
}

// listen hears of a lost connection in time. The driver says that a call failed before it forgets the connection of the call, which
// nobody could close any more if another call came for a connection then and were given a new one. So the client is retired first, and
// those who are on their way into it get the old connection still.
func (p *pool) listen(l *link) driver.LoggingFunc {
	tell := p.conf.Logger
	return func(level driver.LogLevel, format string, args ...any) {
		tell(level, format, args...)
		if level != driver.LogError || len(args) != 1 {
			return
		}
		if err, ok := args[0].(error); ok && status.Code(err) == codes.Unavailable {
			p.leave(l, err)
		}
	}
}

// leave retires a client and waits until nobody is on the way into it. That is soon: a client that is connected keeps nobody waiting.
func (p *pool) leave(l *link, err error) {
	p.retire(l, err)
	l.entering.Wait()
}

// entry is the context of a call on its way into a client. The driver looks at the deadline of its caller as soon as it has the
// connection, and before it makes use of it.
type entry struct {
	context.Context
	link *link
	in   atomic.Bool
}

// Deadline implements context.Context.
func (e *entry) Deadline() (time.Time, bool) {
	e.arrive()
	return e.Context.Deadline()
}

func (e *entry) arrive() {
	if !e.in.Swap(true) {
		e.link.entering.Done()
	}
}

// on makes a call of a client that was acquired.
func on[T any](ctx context.Context, l *link, call func(context.Context, *driver.Client) (T, error)) (T, error) {
	e := &entry{Context: toLeader(ctx), link: l}
	defer e.arrive() // also where the driver did not come to it
	return guarded(e, l.client, call)
}

// connect has the driver search for a server: to ask for the version of one takes no call to it.
func (p *pool) connect(l *link) {
	defer p.release(l)
	defer close(l.ready)
	_, l.failed = guarded(p.done, l.client, func(_ context.Context, c *driver.Client) (*driver.ServerVersion, error) {
		return c.GetServerVersion()
	})
	if l.failed != nil {
		p.retire(l, l.failed)
	}
}

func (p *pool) release(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.calls--; l.calls == 0 && l.retired {
		p.drop(l)
	}
}

// judge retires a client after an error that says that its server is gone. A client that died of it is closed at once:
// calls that came to it in that moment would wait within it for ever otherwise.
func (p *pool) judge(l *link, err error) {
	switch refusal(err) {
	case unreachable, noLeader:
		p.retire(l, err)
	case notLeader:
		p.redirected.Store(true)
	case neverSent:
		p.retire(l, err)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.drop(l)
	default:
	}
}

func (p *pool) retire(l *link, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.retired {
		return
	}
	l.retired = true
	if p.links[l.slot] == l {
		p.links[l.slot] = nil
	}
	if p.done.Err() == nil {
		p.log.Warn("event store connection given up", "err", err)
	}
}

// drop closes a client, under the lock; closing twice does nothing.
func (p *pool) drop(l *link) {
	if err := l.client.Close(); err != nil {
		p.log.Warn("event store connection not closed", "err", err)
	}
}

func (p *pool) close() error {
	p.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range p.links {
		if l == nil {
			continue
		}
		l.retired = true
		p.links[i] = nil
		if l.calls == 0 {
			p.drop(l)
		}
	}
	return nil
}

// tries is how often a call is made that certainly did not reach a server that could answer it.
const tries = 3

// do makes one call. It returns with the context, also where the driver does not. It makes the call again where the error proves
// that nothing was done; again says of which other errors it may.
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
		if why := refusal(err); try == tries || !undone(why) && !again(why) {
			return zero, err
		}
	}
}

// undone says that a call was not done and may be by another server or over another connection.
func undone(why kind) bool { return why == neverSent || why == notLeader || why == noLeader }

func once[T any](ctx context.Context, p *pool, call func(context.Context, *driver.Client) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var zero T
	l, err := p.acquire(ctx)
	if err != nil {
		return zero, err
	}
	if !p.redirected.Load() {
		// A client that is connected and stays where it is ends its calls with their contexts.
		defer p.release(l)
		value, err := on(ctx, l, call)
		p.judge(l, err)
		return value, err
	}
	answers := make(chan answer, 1)
	go func() {
		defer p.release(l)
		value, err := on(ctx, l, call)
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
			err = fmt.Errorf("driver panicked: %v", p)
		}
	}()
	return call(ctx, c)
}
