// Package feed delivers the log to projections: every event, in order, in pages, each page again
// until it is acknowledged.
//
// It is a Watermill subscriber whose topics are the names of checkpoints. A topic at the end of the
// log takes its pages from one live subscription that all topics of the process share. A topic that
// lags reads the log itself, together with topics that lag as far, until it has caught up; it does
// not delay the others.
package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
)

// Checkpoints returns the position that a topic has reached: its first page begins after it.
type Checkpoints func(ctx context.Context, topic string) (eventstore.Position, error)

// Feed is a message.Subscriber over the log. It is safe for concurrent use.
type Feed struct {
	store       eventstore.Store
	codec       *eventstore.Codec
	checkpoints Checkpoints
	logger      *slog.Logger

	observer Observer
	stalls   atomic.Uint64

	mu     sync.Mutex
	topics map[*topic]context.CancelFunc
	// most are the events of a page by topic, where they are not PageEvents.
	most map[string]int
	// live and pages are nil while there are no topics.
	live     *live
	pages    *pages
	stopLive context.CancelFunc
	observed bool // the live subscription continues without topics
	closed   bool
	running  sync.WaitGroup
}

// Observer receives the events of the live subscription. It is called by one goroutine at a time,
// and delays the feed.
type Observer interface {
	// Begins reports that a live subscription begins after a position: there is a gap before it.
	Begins(after eventstore.Position)
	// Arrived receives the next event of the log.
	Arrived(f eventstore.DecodedEvent)
}

// Observe passes every event that arrives from now on to an observer, also while there are no
// topics, until the feed is closed. It must be called before the first Subscribe.
func (f *Feed) Observe(o Observer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observer, f.observed = o, true
	if !f.closed && f.live == nil {
		f.startLive()
	}
}

var _ message.Subscriber = (*Feed)(nil)

// ErrClosed is returned by a feed that was closed.
var ErrClosed = errors.New("feed is closed")

// ErrAhead reports a checkpoint after the end of the log: it belongs to another log, or to a newer
// state of this one.
var ErrAhead = errors.New("checkpoint is ahead of the log")

// New returns a feed. It reads nothing before the first Subscribe.
func New(store eventstore.Store, codec *eventstore.Codec, checkpoints Checkpoints, log *slog.Logger) *Feed {
	return &Feed{
		store:       store,
		codec:       codec,
		checkpoints: checkpoints,
		logger:      log,
		topics:      map[*topic]context.CancelFunc{},
		most:        map[string]int{},
	}
}

// Extend lets the pages of a topic have more events than PageEvents while it follows the live subscription. It must be
// called before the topic is subscribed.
func (f *Feed) Extend(topic string, events int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.most[topic] = events
}

// Subscribe delivers the pages after the checkpoint of the topic, one at a time: Ack requests the
// next page, Nack the same one again (see Rewind). If the store or the checkpoint cannot be read,
// it tries again until the context ends.
//
// The context is also that of the messages. Once it ends, or the feed is closed, the channel is
// closed, but only after the message in progress is answered: a handler must answer every message
// that it receives.
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
		logger: f.logger.With("topic", name), most: max(f.most[name], PageEvents), out: make(chan *message.Message),
	}
	f.topics[t] = stop
	f.running.Go(func() {
		defer f.leave(t)
		// Its end closes the channel, and the reader subscribes again.
		_ = recoverPanic(ctx, t.logger, func() { t.run(running, ctx) })
	})
	return t.out, nil
}

// startLive starts the shared subscription. The caller holds the lock.
func (f *Feed) startLive() {
	ctx, stop := context.WithCancel(context.Background())
	l := newLive(f.store, f.codec, f.logger, f.observer, &f.stalls)
	f.live, f.stopLive = l, stop
	f.pages = &pages{store: f.store, codec: f.codec, logger: f.logger, ctx: ctx, running: &f.running}
	f.running.Go(func() {
		for pause := newPause(); recoverPanic(ctx, f.logger, func() { l.run(ctx) }) != nil; {
			_ = pause.Wait(ctx)
		}
	})
}

func (f *Feed) leave(t *topic) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.topics[t]()
	delete(f.topics, t)
	if len(f.topics) == 0 && !f.observed {
		f.endLive()
	}
}

// endLive ends the shared subscription. The caller holds the lock.
func (f *Feed) endLive() {
	if f.live != nil {
		f.stopLive()
		f.live, f.pages, f.stopLive = nil, nil, nil
	}
}

// Close ends all topics, each after its page in progress is answered, and waits for that. A handler
// must not call it.
func (f *Feed) Close() error {
	f.mu.Lock()
	f.closed, f.observed = true, false
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

// Status is the progress of a topic.
type Status struct {
	Topic string
	// Position is the last acknowledged position; Known is the newest position that this process
	// knows.
	Position, Known eventstore.Position
	// Live is true if the topic takes its pages from the shared subscription.
	Live bool
	// Err is the reason why the topic receives no pages: ErrAhead, or the store or the checkpoint
	// cannot be read.
	Err error
}

// Status returns the progress of each topic.
func (f *Feed) Status() []Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]Status, 0, len(f.topics))
	for t := range f.topics {
		all = append(all, t.status())
	}
	return all
}

// newPause returns the pauses between tries. Their loops end with the context, so the error of Wait
// is not needed.
func newPause() backoff.Backoff {
	return backoff.Backoff{First: 50 * time.Millisecond, Longest: 5 * time.Second}
}

// recoverPanic runs fn and returns its panic, which it logs with its stack, as an error.
func recoverPanic(ctx context.Context, log *slog.Logger, fn func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			log.ErrorContext(ctx, "feed panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	fn()
	return nil
}

// topic is one reader of the log.
type topic struct {
	name        string
	store       eventstore.Store
	checkpoints Checkpoints
	live        *live
	pages       *pages
	logger      *slog.Logger
	// most is how many events a page from the live subscription may have.
	most int
	out  chan *message.Message

	// cursor is the position up to which the log was read: the Next of the current page, or further
	// if nothing of interest follows.
	cursor eventstore.Position
	// lagging is true while pages come from the log; prefetched is the next one, which is read
	// while a handler works on the current one.
	lagging    bool
	prefetched *pageRead

	acked  atomic.Uint64
	joined atomic.Bool
	// lastErr is the reason why no page is delivered.
	lastErr atomic.Pointer[error]
}

// run delivers pages until ctx ends; messages stays valid until the page in progress is answered.
func (t *topic) run(ctx, messages context.Context) {
	defer close(t.out)
	defer t.setLagging(false)
	for t.rewind(ctx) {
		for {
			page, ok := t.next(ctx)
			if !ok {
				return
			}
			answer := t.deliver(ctx, messages, page)
			if answer == stopped {
				return
			}
			if answer == rewound {
				break
			}
			t.acked.Store(uint64(page.Next))
		}
	}
}

// rewind reads the checkpoint until it succeeds; false means that the context ended.
func (t *topic) rewind(ctx context.Context) bool {
	t.prefetched = nil
	pause := newPause()
	for ctx.Err() == nil {
		at, err := t.checkpoint(ctx)
		if err == nil {
			t.cursor = at
			t.acked.Store(uint64(at))
			t.lastErr.Store(nil)
			return true
		}
		if ctx.Err() == nil {
			t.lastErr.Store(&err)
			t.logger.ErrorContext(ctx, "topic cannot begin", "err", err)
		}
		_ = pause.Wait(ctx)
	}
	return false
}

// checkpoint returns where to continue. A checkpoint after the end of the log belongs to another
// log, or to a later state of this one: events that are appended below it would never be delivered,
// so the topic waits for an operator.
func (t *topic) checkpoint(ctx context.Context) (eventstore.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	at, err := t.checkpoints(ctx, t.name)
	if err != nil {
		return 0, fmt.Errorf("read the checkpoint: %w", err)
	}
	if at <= t.live.reached() {
		return at, nil
	}
	head, err := t.store.Head(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the head: %w", err)
	}
	if at > head {
		return 0, fmt.Errorf("%w: checkpoint %d, end of the log %d", ErrAhead, at, head)
	}
	return at, nil
}

// next waits for the page after the last one; false means that the context ended.
func (t *topic) next(ctx context.Context) (Page, bool) {
	pause := newPause()
	for ctx.Err() == nil {
		v := t.live.after(t.cursor, t.most)
		t.setLagging(v.evicted)
		switch {
		case v.evicted:
			r, fresh := t.nextRead()
			select {
			case <-r.done:
			case <-ctx.Done():
				return Page{}, false
			}
			if r.err != nil {
				t.lastErr.Store(&r.err)
				t.logger.WarnContext(ctx, "page not read", "after", t.cursor, "err", r.err)
				_ = pause.Wait(ctx)
				continue
			}
			t.lastErr.Store(nil)
			if len(r.events) == 0 {
				if fresh {
					// The window existed before the log was read: everything up to its beginning
					// was erased.
					t.cursor = max(t.cursor, v.base)
				}
				continue
			}
			page := t.page(r.events)
			if page.Next < v.base {
				t.prefetched, _ = t.pages.read(t.cursor)
			}
			return page, true
		case len(v.events) > 0:
			return t.page(v.events), true
		}
		select {
		case <-v.wake:
		case <-ctx.Done():
		}
	}
	return Page{}, false
}

// page makes a page of events and moves the cursor after them.
func (t *topic) page(events []eventstore.DecodedEvent) Page {
	next := events[len(events)-1].Position
	t.cursor = next
	return Page{After: eventstore.Position(t.acked.Load()), Next: next, Events: events, AtHead: next >= t.live.reached()}
}

// nextRead returns the read of the page after the cursor, which may have been prefetched; fresh
// reports that it was started now.
func (t *topic) nextRead() (r *pageRead, fresh bool) {
	if r, t.prefetched = t.prefetched, nil; r != nil && r.after == t.cursor {
		return r, false
	}
	return t.pages.read(t.cursor)
}

// setLagging records whether the topic reads the log itself.
func (t *topic) setLagging(lagging bool) {
	switch {
	case lagging && !t.lagging:
		t.pages.enter()
	case !lagging && t.lagging:
		t.prefetched = nil
		t.pages.leave()
	}
	t.lagging = lagging
	t.joined.Store(!lagging)
}

// answer is the result of a delivery.
type answer int

const (
	acknowledged answer = iota
	rewound
	stopped
)

// deliver delivers a page until it is acknowledged.
func (t *topic) deliver(ctx, messages context.Context, page Page) answer {
	pause := newPause()
	for try := 0; ctx.Err() == nil; try++ {
		// Repeat the first time at once: most failures have passed by then.
		if try > 1 {
			_ = pause.Wait(ctx)
		}
		msg, d, cancel := messageFor(messages, strconv.FormatUint(uint64(page.Next), 10), page)
		select {
		case t.out <- msg:
		case <-ctx.Done():
			cancel()
			return stopped
		}
		// Wait for the answer even if the topic ends: closing the channel earlier would lose a
		// Nack.
		select {
		case <-msg.Acked():
			cancel()
			return acknowledged
		case <-msg.Nacked():
			cancel()
		}
		if d.rewind.Load() {
			return rewound
		}
	}
	return stopped
}

func (t *topic) status() Status {
	s := Status{
		Topic:    t.name,
		Position: eventstore.Position(t.acked.Load()),
		Known:    t.live.reached(),
		Live:     t.joined.Load(),
	}
	if err := t.lastErr.Load(); err != nil {
		s.Err = *err
	}
	return s
}
