package feed

import (
	"context"
	"time"
)

// The first and the longest pause between two tries.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
)

// backoff waits longer from try to try.
type backoff struct{ last time.Duration }

func (b *backoff) reset() { b.last = 0 }

// wait pauses; it returns early when the context ends.
func (b *backoff) wait(ctx context.Context) {
	b.last = min(max(2*b.last, firstPause), longestPause)
	timer := time.NewTimer(b.last)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
