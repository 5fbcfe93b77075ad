package projections

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/annals-project/annals/eventstore"
)

const (
	// pageLimit ends a transaction that hangs. One that is at work when the process is told to stop is finished within it.
	pageLimit = 30 * time.Second
	// eventLimit is the longest that a single event may take, which gets twice the time with each try.
	eventLimit = time.Hour
	// quickRun is how many quick pages in a row let the next be twice as large.
	quickRun = 8
)

// Bounded is a Projector that knows what its events cost, in bytes, rows or projects. Fit returns how many of the facts, from
// the first, it applies in one page: at least one. All of them are its own and decoded.
type Bounded interface {
	Fit(facts []eventstore.Fact) int
}

// errTooLong is a page whose own limit passed. It is applied in halves; a single event is tried again with a longer limit.
var errTooLong = errors.New("page took longer than its limit")

// bounds limits what one transaction of a projector applies, by what earlier ones cost. One goroutine at a time uses it.
type bounds struct {
	page, event time.Duration // the limit of a page of several events, and the longest of a single one
	// most is how many of the projector's events one transaction takes; 0 is all of a page. It halves with each page that
	// took too long, and doubles after quickRun quick ones of that size.
	most, quick int
	// slow is the event that took too long by itself, and slowLimit the limit of its next try.
	slow      eventstore.Position
	slowLimit time.Duration
}

// limit is how long a transaction of these facts, all of them the projector's, may take.
func (b *bounds) limit(own []eventstore.Fact) time.Duration {
	if len(own) == 1 && own[0].Position == b.slow {
		return b.slowLimit
	}
	return b.page
}

// exceeded records that facts took longer than their limit.
func (b *bounds) exceeded(own []eventstore.Fact) {
	if len(own) > 1 {
		b.most, b.quick = len(own)/2, 0
		return
	}
	b.slowLimit = min(2*b.limit(own), b.event)
	b.slow = own[0].Position
}

// applied records how long facts took.
func (b *bounds) applied(own []eventstore.Fact, took time.Duration) {
	if b.most > 0 && len(own) >= b.most && took < b.page/8 {
		if b.quick++; b.quick >= quickRun {
			b.most, b.quick = 2*b.most, 0
		}
		if b.most >= mostEvents {
			b.most = 0
		}
	}
	if b.slow != 0 && own[len(own)-1].Position >= b.slow {
		b.slow, b.slowLimit = 0, 0
	}
}

// next is how many of the facts, from the first, the next transaction takes.
func (r *runner) next(facts []eventstore.Fact) int {
	bounded, knows := r.projector.(Bounded)
	if !knows && r.bounds.most == 0 && r.bounds.slow == 0 {
		return len(facts)
	}
	own, at := make([]eventstore.Fact, 0, len(facts)), make([]int, 0, len(facts))
	for i, f := range facts {
		if r.owns(f) {
			own, at = append(own, f), append(at, i)
		}
	}
	fit := len(own)
	if knows && fit > 1 {
		fit = min(max(bounded.Fit(own), 1), fit)
	}
	if r.bounds.most > 0 {
		fit = min(fit, r.bounds.most)
	}
	for i, f := range own[:fit] {
		if f.Position == r.bounds.slow { // it is tried alone, with a limit of its own
			fit = max(i, 1)
			break
		}
	}
	if fit == len(own) {
		return len(facts)
	}
	return at[fit]
}

// within bounds a transaction by a limit, which passes with errTooLong as its cause. The end of the parent does not end a page
// of the usual limit, so that a process finishes the page at hand; one that may take longer comes again.
func (r *runner) within(parent context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(parent), limit, errTooLong)
	if limit <= r.bounds.page {
		return ctx, cancel
	}
	stop := context.AfterFunc(parent, cancel)
	return ctx, func() { stop(); cancel() }
}

// tooLong wraps the error of a transaction whose own limit passed.
func tooLong(ctx context.Context, limit time.Duration, err error) error {
	if err == nil || errors.Is(err, errStale) || !errors.Is(context.Cause(ctx), errTooLong) {
		return err
	}
	return fmt.Errorf("%w of %s: %w", errTooLong, limit, err)
}
