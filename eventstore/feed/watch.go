package feed

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/annals-project/annals/eventstore"
)

// The live subscription is looked at every watchPause. It is given up after stallTime in which it brought nothing
// although the log goes on: so a stall is over after less than a minute.
const (
	watchPause = 10 * time.Second
	stallTime  = 30 * time.Second
)

var errStalled = errors.New("the subscription brings nothing, and the log goes on")

// watched is what the watchdog sees of one subscription.
type watched struct {
	// seen counts what the subscription brought. waiting is true while it is asked for more: whoever works on what it
	// brought, for however long, has not stalled.
	seen    atomic.Uint64
	waiting atomic.Bool
}

// next asks the subscription for the next event.
func (w *watched) next(ctx context.Context, sub eventstore.Subscription) (eventstore.Recorded, error) {
	w.waiting.Store(true)
	defer w.waiting.Store(false)
	r, err := sub.Next(ctx)
	if err == nil {
		w.seen.Add(1)
	}
	return r, err
}

// watch compares the head of the log with what was reached, and ends the subscription once it has stalled: a connection that is
// open on one side only, or a server that has forgotten the subscription, says nothing by itself. A head that cannot be read
// proves nothing. One look alone proves nothing either, since what was appended a moment ago is on its way.
func (l *live) watch(ctx context.Context, w *watched, giveUp context.CancelCauseFunc) {
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	var (
		seen  uint64
		since time.Time // since when the log was known to be ahead while nothing came; zero if it is not
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
			giveUp(fmt.Errorf("%w: at %d, its end is %d", errStalled, l.reached(), head))
			return
		}
	}
}

// head reads where the log ends.
func (l *live) head(ctx context.Context) (eventstore.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	head, err := l.store.Head(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the head: %w", err)
	}
	return head, nil
}
