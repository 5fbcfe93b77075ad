package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections"
)

// beginIn begins a transaction whose commit does not wait for the disk, with search_path set to a
// quoted schema, in one round trip.
func beginIn(schema string) pgx.TxOptions {
	return pgx.TxOptions{BeginQuery: "begin; set local synchronous_commit = off; set local search_path = " + schema}
}

// A page passes through these steps, each of which adds one thing:
//
//	handleMessage   what the feed does next: ack, nack and rewind, or retry
//	applyPage       the end before an event that cannot be decoded
//	applyFitting    pages as large as the projector can apply
//	bisect          halves of a page that fails, down to the event that cannot be applied
//	commitPage      the limit of a transaction, hooks and waiters
//	lease.advance   the position of the lease
//	inTx            one transaction for rows and checkpoint
//	recoverPanics   a panic of the projector as an error

// handleMessage applies one page. It returns an error only if the page may succeed when it comes
// again.
func (r *runner) handleMessage(msg *message.Message) error {
	page, ok := feed.PageOf(msg)
	if !ok {
		return errors.New("message is not a page of the feed")
	}
	ctx, l, began := msg.Context(), r.current.Load(), time.Now()
	err := r.applyPage(ctx, l, page)
	stop, stops := errors.AsType[*Stop](err)
	switch {
	case err == nil:
		r.again.Reset()
		r.pace(ctx, began, page)
		return nil
	case errors.Is(err, errStale):
		r.log.WarnContext(ctx, "checkpoint is not at the start of the page, will read it again",
			"after", page.After, "epoch", l.epoch)
		feed.Rewind(msg)
		msg.Nack()
		return nil
	case stops:
		r.recordStop(ctx, stop)
		l.end()
		msg.Nack()
		return nil
	default:
		r.recordFailure(page.After, page.Next, began, err)
		_ = r.again.Wait(ctx)
		return fmt.Errorf("%s: page after %d: %w", r.topic(), page.After, err)
	}
}

// applyPage applies the projector's events of a page, up to the first that cannot be decoded.
func (r *runner) applyPage(ctx context.Context, l *lease, page feed.Page) error {
	p := r.partOf(page.After, page.Events)
	bad := slices.IndexFunc(p.own, r.isUnreadable)
	if bad < 0 {
		return r.applyFitting(ctx, l, p)
	}
	decoded, _ := p.cut(bad)
	if err := r.applyFitting(ctx, l, decoded); err != nil {
		return err
	}
	return r.stopAt(ctx, l, p.own[bad], p.own[bad].Err)
}

// applyFitting applies events in pages as large as the projector can apply.
func (r *runner) applyFitting(ctx context.Context, l *lease, p part) error {
	for len(p.events) > 0 {
		var fits part
		fits, p = p.cut(r.fitting(p.own))
		if err := r.bisect(ctx, l, fits); err != nil {
			return err
		}
		if len(p.events) > 0 && ctx.Err() != nil {
			return ctx.Err() // the next holder of the lease applies the rest
		}
	}
	return nil
}

// bisect applies events as one page. If an event makes that fail, or it takes too long, it applies them in halves,
// up to the first event that cannot be applied.
func (r *runner) bisect(ctx context.Context, l *lease, p part) error {
	cause := r.commitPage(ctx, l, p)
	long := errors.Is(cause, errTooLong)
	if cause == nil || errors.Is(cause, errStale) || !causedByEvent(cause) && !long {
		return cause
	}
	if len(p.own) == 1 && long {
		r.log.WarnContext(ctx, "event takes longer than its limit, will retry with a longer one",
			"position", p.own[0].Position, "stream", p.own[0].Stream, "next_limit", r.bounds.slowLimit, "err", cause)
		return cause
	}
	if len(p.own) == 1 {
		// The events of other projections before it still move the checkpoint.
		if before, _ := p.cut(0); len(before.events) > 0 {
			if err := r.commitPage(ctx, l, before); err != nil {
				return err
			}
		}
		return r.stopAt(ctx, l, p.own[0], cause)
	}
	if err := ctx.Err(); err != nil {
		return err // the next holder of the lease applies the rest
	}
	r.log.WarnContext(ctx, "page not applied, will retry in halves",
		"after", p.after, "events", len(p.events), "err", cause)
	first, second := p.cut(len(p.own) / 2)
	if err := r.applyFitting(ctx, l, first); err != nil {
		return err
	}
	return r.applyFitting(ctx, l, second)
}

// stopAt returns the Stop at an event, or errStale if another process took the lease and caused the
// error.
func (r *runner) stopAt(ctx context.Context, l *lease, f eventstore.DecodedEvent, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pageLimit)
	defer cancel()
	row, readErr := r.table.read(ctx)
	if readErr != nil {
		return readErr
	}
	if row.epoch != l.epoch {
		return errStale
	}
	return &Stop{
		Projection: r.projector.Name(), Position: f.Position, Stream: f.Stream, Type: f.Type, EventID: f.ID,
		Err: causeOf(err),
	}
}

// commitPage applies the projector's events and moves the checkpoint to the last event, in one
// transaction.
func (r *runner) commitPage(ctx context.Context, l *lease, p part) error {
	began := time.Now()
	limit := r.bounds.limit(p.own)
	ctx, cancel := r.within(ctx, limit)
	defer cancel()
	last := p.events[len(p.events)-1]
	var err error
	if len(p.own) == 0 {
		err = l.skip(p.after, last.Position, last.ID)
	} else {
		err = l.advance(p.after, last.Position, last.ID, func(from eventstore.Position) error {
			return r.inTx(ctx, l, from, last, p.own)
		})
		if err = tooLong(ctx, limit, err); errors.Is(err, errTooLong) {
			r.bounds.exceeded(p.own)
		}
	}
	if err != nil {
		return err
	}
	if len(p.own) > 0 {
		r.bounds.applied(p.own, time.Since(began))
	}
	// Wake waiters last, so that the hook has already invalidated its caches.
	r.hooks.page(r.projector.Name(), len(p.events), len(p.own), time.Since(began))
	r.progress.advanced(last.Position)
	return nil
}

// inTx writes rows and checkpoint in one transaction, which starts with the checkpoint at from.
func (r *runner) inTx(
	ctx context.Context, l *lease, from eventstore.Position, last eventstore.DecodedEvent, own []eventstore.DecodedEvent,
) error {
	if _, external := r.projector.(projections.External); external {
		// The epoch guards the rows. The external target is written before they are committed.
		if err := r.confirm(ctx, l); err != nil {
			return err
		}
		ctx = projections.WithLease(ctx, func() error { return r.held(l) })
	}
	var left bool
	err := pgx.BeginTxFunc(ctx, r.db, beginIn(r.table.schema), func(tx pgx.Tx) error {
		if err := causeOf(r.recoverPanics(ctx, tx, own)); err != nil {
			if tx.Conn().IsClosed() {
				return projections.Transient(err)
			}
			return err
		}
		if _, follows := r.projector.(projections.Following); follows {
			var err error
			if left, err = hasFollowUps(ctx, tx, r.table.schema); err != nil {
				return err
			}
		}
		return r.table.move(ctx, tx, l.epoch, r.leaseTime, from, last.Position, last.ID)
	})
	// Also after an error: a commit without an answer may have queued them.
	if left {
		select {
		case l.queued <- struct{}{}:
		default: // it has not received the last one yet
		}
	}
	return err
}

// recoverPanics calls Apply and returns its panic as an error of the events.
func (r *runner) recoverPanics(ctx context.Context, tx pgx.Tx, own []eventstore.DecodedEvent) (err error) {
	defer panics.Recover(ctx, r.log, &err, "projector panicked")
	return r.projector.Apply(ctx, tx, own)
}

// owns reports whether the projector gets an event.
func (r *runner) owns(f *eventstore.DecodedEvent) bool {
	_, isWhole := r.projector.(projections.Whole)
	return slices.Contains(r.projector.Categories(), stream.Category(f.Stream)) &&
		(isWhole || !f.IsPassedOver() && !r.setAside.Covers(f.Position, r.projector.Name()))
}

// isUnreadable reports whether an event stops the projector, since it cannot be decoded and is not set aside.
func (r *runner) isUnreadable(f eventstore.DecodedEvent) bool {
	return f.Err != nil && !r.setAside.Covers(f.Position, r.projector.Name())
}

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

// part is consecutive events of a page, with those of the projector.
type part struct {
	after  eventstore.Position // the position before the first event
	events []eventstore.DecodedEvent
	own    []eventstore.DecodedEvent
	at     []int // the indexes of own in the page
	from   int   // the index of the first event in the page
}

// partOf returns a whole page. It decides once for each event whether the projector applies it.
func (r *runner) partOf(after eventstore.Position, events []eventstore.DecodedEvent) part {
	p := part{after: after, events: events, at: make([]int, 0, len(events))}
	for i := range events {
		if r.owns(&events[i]) {
			p.at = append(p.at, i)
		}
	}
	if len(p.at) == len(events) {
		p.own = events
		return p
	}
	p.own = make([]eventstore.DecodedEvent, len(p.at))
	for n, i := range p.at {
		p.own[n] = events[i]
	}
	return p
}

// cut returns the events before the projector's event n, and the rest: nothing if it has no more than n.
func (p part) cut(n int) (first, rest part) {
	if n == len(p.own) {
		return p, part{}
	}
	i := p.at[n] - p.from
	first = part{after: p.after, events: p.events[:i], own: p.own[:n], at: p.at[:n], from: p.from}
	rest = part{after: p.after, events: p.events[i:], own: p.own[n:], at: p.at[n:], from: p.at[n]}
	if i > 0 {
		rest.after = p.events[i-1].Position
	}
	return first, rest
}

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
