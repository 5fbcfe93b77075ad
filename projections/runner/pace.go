package runner

import (
	"context"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/eventstore/feed"
)

// pace waits after a page, which is visible by then, until the next one may begin.
func (r *runner) pace(ctx context.Context, began time.Time, page feed.Page) {
	pace := r.projector.Pace()
	if len(page.Events) >= max(pace.Full, feed.PageEvents) || !page.AtHead {
		return
	}
	left := pace.After(len(page.Events)) - time.Since(began)
	wake := r.progress.wake()
	if left <= 0 || wake == nil {
		return
	}
	_ = backoff.Pause(ctx, left, wake)
}

// request records that a caller waits for a position.
func (p *progress) request(position eventstore.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if position <= max(p.requested, p.position) {
		return
	}
	p.requested = position
	if p.woken != nil {
		close(p.woken)
		p.woken = nil
	}
}

// wake returns a channel that request closes, nil if a caller waits for a position that is not
// applied yet.
func (p *progress) wake() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requested > p.position {
		return nil
	}
	if p.woken == nil {
		p.woken = make(chan struct{})
	}
	return p.woken
}
