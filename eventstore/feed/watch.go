package feed

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/annals-project/annals/eventstore"
)

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
