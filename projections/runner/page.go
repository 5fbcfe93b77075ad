package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
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
