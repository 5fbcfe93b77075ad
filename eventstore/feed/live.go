package feed

import (
	"context"
	"log/slog"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annals-project/annals/eventstore"
)

// The bounds of what the shared subscription keeps for topics that are a little late. Whoever is later reads for himself.
const (
	windowEvents = 8 * PageEvents
	windowBytes  = 2 * PageBytes
)

// live follows the end of the log once for all topics, and keeps a window of its newest facts: every event behind base up to top.
// A topic takes from the window what lies behind its own position, so nothing waits here for the slowest of them.
type live struct {
	store eventstore.Store
	codec *eventstore.Codec
	log   *slog.Logger
	// observer is nil for none.
	observer Observer
	// stalls counts the subscriptions that were ended because they stalled.
	stalls *atomic.Uint64

	mu sync.Mutex
	// known is false until the head of the log was read for the first time.
	known     bool
	base, top eventstore.Position
	facts     []eventstore.Fact
	bytes     int
	// wake is closed at the next change; nil while nobody waits.
	wake chan struct{}
}

func newLive(
	store eventstore.Store, codec *eventstore.Codec, log *slog.Logger, observer Observer, stalls *atomic.Uint64,
) *live {
	return &live{store: store, codec: codec, log: log, observer: observer, stalls: stalls}
}

// run follows the log until the context ends.
func (l *live) run(ctx context.Context) {
	var pause backoff
	for ctx.Err() == nil {
		err := l.begin(ctx)
		if err == nil {
			err = l.follow(ctx, &pause)
		}
		if ctx.Err() != nil {
			return
		}
		l.log.WarnContext(ctx, "live subscription lost", "after", l.reached(), "err", err)
		pause.wait(ctx)
	}
}

// begin finds out where the log ends, once.
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
	l.rouse()
	return nil
}

func (l *live) follow(ctx context.Context, pause *backoff) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	w := &watched{}
	w.waiting.Store(true) // also for the subscription itself
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for again := (backoff{}); guard(ctx, l.log, func() { l.watch(ctx, w, giveUp) }) != nil; {
			again.wait(ctx)
		}
	}()
	defer func() { <-watching }()
	defer giveUp(nil)
	sub, err := l.store.Subscribe(ctx, l.reached())
	if err != nil {
		return err
	}
	defer func() {
		if err := sub.Close(); err != nil {
			l.log.WarnContext(ctx, "live subscription not closed", "err", err)
		}
	}()
	for {
		r, err := w.next(ctx, sub)
		if err != nil {
			return err
		}
		pause.reset()
		f := factOf(l.codec, r)
		if l.observer != nil && f.Position > l.reached() {
			l.observer.Arrived(f)
		}
		l.keep(f)
	}
}

// keep adds a fact to the window and lets go of the oldest ones that are over the bounds.
func (l *live) keep(f eventstore.Fact) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.Position <= l.top {
		return
	}
	l.facts = append(l.facts, f)
	l.bytes += f.Size()
	l.top = f.Position
	drop := 0
	for len(l.facts)-drop > windowEvents || l.bytes > windowBytes && len(l.facts)-drop > 1 {
		l.base = l.facts[drop].Position
		l.bytes -= l.facts[drop].Size()
		drop++
	}
	// Pages share this array, so what goes is cut off and never written over.
	l.facts = l.facts[drop:]
	l.rouse()
}

func (l *live) rouse() {
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

// view is what a topic finds when it looks for what lies behind its position.
type view struct {
	// behind is true where the window begins later than that.
	behind bool
	base   eventstore.Position
	facts  []eventstore.Fact
	// wake is closed when it is worth while to look again; set only where there is nothing to take and nothing to read.
	wake <-chan struct{}
}

func (l *live) after(p eventstore.Position) view {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known && p < l.base {
		return view{behind: true, base: l.base}
	}
	from := sort.Search(len(l.facts), func(i int) bool { return l.facts[i].Position > p })
	if from == len(l.facts) {
		if l.wake == nil {
			l.wake = make(chan struct{})
		}
		return view{base: l.base, wake: l.wake}
	}
	to := from + fitting(l.facts[from:])
	return view{base: l.base, facts: l.facts[from:to:to]}
}

// fitting is how many of the facts go into one page.
func fitting(facts []eventstore.Fact) int {
	n, size := 0, 0
	for n < len(facts) && n < PageEvents {
		if size += facts[n].Size(); size > PageBytes && n > 0 {
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

// reached is the newest position that was heard of.
func (l *live) reached() eventstore.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.top
}

// callTimeout ends a single read of the log that hangs.
const callTimeout = 30 * time.Second
