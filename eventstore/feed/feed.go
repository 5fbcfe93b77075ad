// Package feed hands the log to whoever builds something from it: all of it, in order, page by page, each page until it is acknowledged.
//
// It is a Watermill subscriber whose topics are the names of checkpoints. A topic that stands at the end of the log takes its
// pages from one live subscription that all topics of the process share; a topic that is behind, or too slow, reads the log
// itself (together with those who are as far behind) until it has caught up, and holds up nobody.
package feed

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/annals-project/annals/eventstore"
)

// Checkpoints answers how far a topic has come: the position to go on behind.
type Checkpoints func(ctx context.Context, topic string) (eventstore.Position, error)

// Feed is a message.Subscriber over the log. It is safe for concurrent use.
type Feed struct {
	store       eventstore.Store
	codec       *eventstore.Codec
	checkpoints Checkpoints
	log         *slog.Logger

	observer Observer
	stalls   atomic.Uint64

	mu     sync.Mutex
	topics map[*topic]context.CancelFunc
	// live and pages are there as long as there are topics.
	live     *live
	pages    *pages
	stopLive context.CancelFunc
	held     bool // the live subscription goes on without topics
	closed   bool
	running  sync.WaitGroup
}

// Observer is called by one goroutine at a time, and holds up the feed.
type Observer interface {
	// Begins is a live subscription that begins after a position; what was observed before it has a gap.
	Begins(after eventstore.Position)
	// Arrived is the next event of the log.
	Arrived(f eventstore.Fact)
}

// Observe calls an observer with every event that arrives from here on, also while there are no topics, until the feed is
// closed. It must be called before the first Subscribe.
func (f *Feed) Observe(o Observer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observer, f.held = o, true
	if !f.closed && f.live == nil {
		f.startLive()
	}
}

var _ message.Subscriber = (*Feed)(nil)

// ErrClosed is the answer of a feed that was closed.
var ErrClosed = errors.New("feed is closed")

// ErrAhead is a checkpoint that lies behind the end of the log: the log is another one, or an older copy.
var ErrAhead = errors.New("checkpoint is ahead of the log")

// New makes a feed. Nothing is read before the first Subscribe.
func New(store eventstore.Store, codec *eventstore.Codec, checkpoints Checkpoints, log *slog.Logger) *Feed {
	return &Feed{store: store, codec: codec, checkpoints: checkpoints, log: log, topics: map[*topic]context.CancelFunc{}}
}

// Subscribe begins to hand over what lies behind the checkpoint of the topic, one page at a time: Ack asks for the next page, Nack for the
// same one again (see Rewind). A store or a checkpoint that cannot be read is tried again until the context ends.
//
// The context is that of the messages too. Once it ends, or the feed is closed, the channel is closed, but not before the message
// that is out has been answered: a handler must answer every message that it takes.
func (f *Feed) Subscribe(ctx context.Context, name string) (<-chan *message.Message, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, ErrClosed
	}
	if f.live == nil {
		f.startLive()
	}
	running, stop := context.WithCancel(ctx)
	t := &topic{
		name: name, store: f.store, checkpoints: f.checkpoints, live: f.live, pages: f.pages,
		log: f.log.With("topic", name), out: make(chan *message.Message),
	}
	f.topics[t] = stop
	f.running.Add(1)
	go func() {
		defer f.running.Done()
		defer f.leave(t)
		_ = guard(ctx, t.log, func() { t.run(running, ctx) }) // its end closes the channel, and the reader subscribes again
	}()
	return t.out, nil
}

// startLive begins the shared subscription; the caller holds the lock.
func (f *Feed) startLive() {
	ctx, stop := context.WithCancel(context.Background())
	l := newLive(f.store, f.codec, f.log, f.observer, &f.stalls)
	f.live, f.stopLive = l, stop
	f.pages = &pages{store: f.store, codec: f.codec, log: f.log, ctx: ctx, running: &f.running}
	f.running.Add(1)
	go func() {
		defer f.running.Done()
		for pause := (backoff{}); guard(ctx, f.log, func() { l.run(ctx) }) != nil; {
			pause.wait(ctx)
		}
	}()
}

func (f *Feed) leave(t *topic) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.topics[t]()
	delete(f.topics, t)
	if len(f.topics) == 0 && !f.held {
		f.endLive()
	}
}

// endLive ends the shared subscription; the caller holds the lock.
func (f *Feed) endLive() {
	if f.live != nil {
		f.stopLive()
		f.live, f.pages, f.stopLive = nil, nil, nil
	}
}

// Close ends all topics: each after the page that is out has been answered, for which Close waits. A handler must not call it.
func (f *Feed) Close() error {
	f.mu.Lock()
	f.closed, f.held = true, false
	if len(f.topics) == 0 {
		f.endLive()
	}
	for _, stop := range f.topics {
		stop()
	}
	f.mu.Unlock()
	f.running.Wait()
	return nil
}

// Stalls counts how often the live subscription stalled while the log grew, and was restarted.
func (f *Feed) Stalls() uint64 { return f.stalls.Load() }

// Status is where a topic stands.
type Status struct {
	Topic string
	// Position is up to where everything was acknowledged; Known is the newest position that this process has heard of.
	Position, Known eventstore.Position
	// Live is true for a topic that takes its pages from the shared subscription.
	Live bool
	// Err is why the topic gets no pages at present: ErrAhead, or that the store or the checkpoint cannot be read.
	Err error
}

// Status says where each topic stands.
func (f *Feed) Status() []Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]Status, 0, len(f.topics))
	for t := range f.topics {
		all = append(all, t.status())
	}
	return all
}
