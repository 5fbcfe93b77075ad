package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

const (
	// pageLimit bounds one transaction. A process that stops finishes its page within it.
	pageLimit = 30 * time.Second
	// eventLimit bounds the transaction of a single event, whose limit doubles with each try.
	eventLimit = time.Hour
	// quickPages is how many quick pages in a row let the next be twice as large.
	quickPages = 8
)

// errTooLong is the cause of a page that exceeds its limit. The runner applies it in halves, or
// retries a single event with a longer limit.
var errTooLong = errors.New("page took longer than its limit")

// bounds limits the events of one transaction by the cost of earlier ones. It is not safe for
// concurrent use.
type bounds struct {
	page, event time.Duration // the limit of a page of several events, and the maximum for a single event
	// maxOwn is how many of the projector's events one transaction may apply; 0 is no limit. It halves
	// after a page that takes too long, and doubles after quickPages quick ones of that size.
	maxOwn, quick int
	// slow is the single event that took too long, slowLimit the limit of its next try.
	slow      eventstore.Position
	slowLimit time.Duration
}

// limit returns how long a transaction of these events of the projector may take.
func (b *bounds) limit(own []eventstore.DecodedEvent) time.Duration {
	if len(own) == 1 && own[0].Position == b.slow {
		return b.slowLimit
	}
	return b.page
}

// exceeded records that events took longer than their limit.
func (b *bounds) exceeded(own []eventstore.DecodedEvent) {
	if len(own) > 1 {
		b.maxOwn, b.quick = len(own)/2, 0
		return
	}
	b.slowLimit = min(2*b.limit(own), b.event)
	b.slow = own[0].Position
}

// isLongest reports whether the next try of the event at a position has the longest limit.
func (b *bounds) isLongest(at eventstore.Position) bool {
	return at > 0 && b.slow == at && b.slowLimit >= b.event
}

// applied records how long events took.
func (b *bounds) applied(own []eventstore.DecodedEvent, took time.Duration) {
	if b.maxOwn > 0 && len(own) >= b.maxOwn && took < b.page/8 {
		if b.quick++; b.quick >= quickPages {
			b.maxOwn, b.quick = 2*b.maxOwn, 0
		}
		if b.maxOwn >= maxEvents {
			b.maxOwn = 0
		}
	}
	if b.slow != 0 && own[len(own)-1].Position >= b.slow {
		b.slow, b.slowLimit = 0, 0
	}
}

// fitting returns how many of the projector's events, from the first, the next transaction applies.
func (r *runner) fitting(own []eventstore.DecodedEvent) int {
	fit := len(own)
	if bounded, knows := r.projector.(projections.Bounded); knows && fit > 1 {
		fit = min(max(bounded.Fit(own), 1), fit)
	}
	if r.bounds.maxOwn > 0 {
		fit = min(fit, r.bounds.maxOwn)
	}
	if r.bounds.slow == 0 {
		return fit
	}
	for i, f := range own[:fit] {
		if f.Position == r.bounds.slow { // retry it alone, with its own limit
			return max(i, 1)
		}
	}
	return fit
}

// within bounds a transaction by a limit, which ends it with errTooLong as its cause. If the parent
// ends, a page of the usual limit still finishes; one with a longer limit ends, and comes again.
func (r *runner) within(parent context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(parent), limit, errTooLong)
	if limit <= r.bounds.page {
		return ctx, cancel
	}
	stop := context.AfterFunc(parent, cancel)
	return ctx, func() { stop(); cancel() }
}

// tooLong wraps the error of a transaction that exceeded its limit.
func tooLong(ctx context.Context, limit time.Duration, err error) error {
	if err == nil || errors.Is(err, errStale) || !errors.Is(context.Cause(ctx), errTooLong) {
		return err
	}
	return fmt.Errorf("%w of %s: %w", errTooLong, limit, err)
}
