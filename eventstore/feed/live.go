package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
)

// The bounds of the window of the shared subscription. A topic that lags further reads the log
// itself.
const (
	windowEvents = 8 * PageEvents
	windowBytes  = 2 * PageBytes
)

// live follows the end of the log once for all topics, and keeps a window of its newest events:
// every event after base up to top. A topic takes the events after its own position, so the slowest
// topic delays no other.
type live struct {
	store  eventstore.Store
	codec  *eventstore.Codec
	logger *slog.Logger
	// observer is nil for none.
	observer Observer
	// stalls counts the subscriptions that were ended because they stalled.
	stalls *atomic.Uint64

	mu sync.Mutex
	// known is false until the head of the log was read for the first time.
	known     bool
	base, top eventstore.Position
	events    []eventstore.DecodedEvent
	bytes     int
	// wake is closed at the next change; nil if no topic waits.
	wake chan struct{}
}

func newLive(
	store eventstore.Store, codec *eventstore.Codec, log *slog.Logger, observer Observer, stalls *atomic.Uint64,
) *live {
	return &live{store: store, codec: codec, logger: log, observer: observer, stalls: stalls}
}

// run follows the log until the context ends.
func (l *live) run(ctx context.Context) {
	pause := newPause()
	for ctx.Err() == nil {
		err := l.begin(ctx)
		if err == nil {
			err = l.follow(ctx, &pause)
		}
		if ctx.Err() != nil {
			return
		}
		l.logger.WarnContext(ctx, "live subscription lost", "after", l.reached(), "err", err)
		_ = pause.Wait(ctx)
	}
}

// begin reads the head of the log, once.
func (l *live) begin(ctx context.Context) error {
	if l.isKnown() {
		return nil
	}
	head, err := l.head(ctx)
	if err != nil {
		return err
	}
	if l.observer != nil {
		l.observer.Begins(head)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known, l.base, l.top = true, head, head
	l.notify()
	return nil
}

func (l *live) follow(ctx context.Context, pause *backoff.Backoff) error {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watched{}
	w.waiting.Store(true) // also for the subscription itself
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for again := newPause(); recoverPanic(ctx, l.logger, func() { l.watch(ctx, w, cancel) }) != nil; {
			_ = again.Wait(ctx)
		}
	}()
	defer func() { <-watching }()
	defer cancel(nil)
	sub, err := l.store.Subscribe(ctx, l.reached())
	if err != nil {
		return err
	}
	defer func() {
		if err := sub.Close(); err != nil {
			l.logger.WarnContext(ctx, "live subscription not closed", "err", err)
		}
	}()
	for {
		r, err := w.next(ctx, sub)
		if err != nil {
			return err
		}
		pause.Reset()
		f := Decode(l.codec, r)
		if l.observer != nil && f.Position > l.reached() {
			l.observer.Arrived(f)
		}
		l.add(f)
	}
}

// add adds an event to the window and drops the oldest ones over the bounds.
func (l *live) add(f eventstore.DecodedEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.Position <= l.top {
		return
	}
	l.events = append(l.events, f)
	l.bytes += f.Size()
	l.top = f.Position
	drop := 0
	for len(l.events)-drop > windowEvents || l.bytes > windowBytes && len(l.events)-drop > 1 {
		l.base = l.events[drop].Position
		l.bytes -= l.events[drop].Size()
		drop++
	}
	// Pages share this array: dropped events are sliced off and never overwritten.
	l.events = l.events[drop:]
	l.notify()
}

func (l *live) notify() {
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

// view is what a topic finds after its position.
type view struct {
	// evicted is true if the window begins after that position.
	evicted bool
	base    eventstore.Position
	events  []eventstore.DecodedEvent
	// wake is closed when there may be more events. It is set only if there are none now.
	wake <-chan struct{}
}

// after returns what follows a position: at most so many events.
func (l *live) after(p eventstore.Position, most int) view {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known && p < l.base {
		return view{evicted: true, base: l.base}
	}
	from := sort.Search(len(l.events), func(i int) bool { return l.events[i].Position > p })
	if from == len(l.events) {
		if l.wake == nil {
			l.wake = make(chan struct{})
		}
		return view{base: l.base, wake: l.wake}
	}
	to := from + countFitting(l.events[from:], most)
	return view{base: l.base, events: l.events[from:to:to]}
}

// countFitting returns how many of the events fit into one page of at most so many.
func countFitting(events []eventstore.DecodedEvent, most int) int {
	n, size := 0, 0
	for n < len(events) && n < most {
		if size += events[n].Size(); size > PageBytes && n > 0 {
			break
		}
		n++
	}
	return n
}

func (l *live) isKnown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

// reached returns the newest position that arrived.
func (l *live) reached() eventstore.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.top
}

// callTimeout ends a single read of the log that hangs.
const callTimeout = 30 * time.Second

// The live subscription is checked every watchPause. It is ended after stallTime without an event
// while the log grows, so a stall lasts less than a minute.
const (
	watchPause = 10 * time.Second
	stallTime  = 30 * time.Second
)

var errStalled = errors.New("subscription stalled while the log grows")

// watched is what the watchdog records about one subscription.
type watched struct {
	// seen counts the events of the subscription. waiting is true while a call of Next waits for
	// one: a reader that works on an event for long has not stalled.
	seen    atomic.Uint64
	waiting atomic.Bool
}

// next waits for the next event of the subscription.
func (w *watched) next(ctx context.Context, sub eventstore.Subscription) (eventstore.Recorded, error) {
	w.waiting.Store(true)
	defer w.waiting.Store(false)
	r, err := sub.Next(ctx)
	if err == nil {
		w.seen.Add(1)
	}
	return r, err
}

// watch compares the head of the log with the position reached, and ends the subscription once it
// has stalled. A half-open connection, or a server that has lost the subscription, reports no
// error. A failed read of the head proves nothing. One comparison proves nothing either, since a
// new event may be on its way.
func (l *live) watch(ctx context.Context, w *watched, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	var (
		seen  uint64
		since time.Time // since when the log is ahead and nothing comes; zero if it is not ahead
	)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := w.seen.Load(); now != seen || !w.waiting.Load() {
			seen, since = now, time.Time{}
			continue
		}
		head, err := l.head(ctx)
		if err != nil {
			continue
		}
		if head <= l.reached() || w.seen.Load() != seen || !w.waiting.Load() {
			since = time.Time{}
			continue
		}
		if since.IsZero() {
			since = time.Now()
			continue
		}
		if time.Since(since) >= stallTime {
			l.stalls.Add(1)
			cancel(fmt.Errorf("%w: reached %d, head is %d", errStalled, l.reached(), head))
			return
		}
	}
}

// head reads the head of the log.
func (l *live) head(ctx context.Context) (eventstore.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	head, err := l.store.Head(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the head: %w", err)
	}
	return head, nil
}
