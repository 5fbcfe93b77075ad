package projections

import (
	"context"
	"time"
)

// pause waits longer from try to try.
type pause struct{ next, most time.Duration }

func newPause(first, most time.Duration) *pause { return &pause{next: first, most: most} }

func (p *pause) wait(ctx context.Context) {
	wait(ctx, p.next)
	p.next = min(2*p.next, p.most)
}

// wait pauses; it returns early when the context ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// waitOr is wait that ends early when something is closed too.
func (p *pause) waitOr(ctx context.Context, early <-chan struct{}) {
	timer := time.NewTimer(p.next)
	defer timer.Stop()
	p.next = min(2*p.next, p.most)
	select {
	case <-timer.C:
	case <-early:
	case <-ctx.Done():
	}
}
