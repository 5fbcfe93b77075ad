package projections

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/panics"
)

// beginIn begins a transaction that does not wait for the disk when it commits, and whose statements find the tables of a
// schema (quoted) without naming it: in the same round trip.
func beginIn(schema string) pgx.TxOptions {
	return pgx.TxOptions{BeginQuery: "begin; set local synchronous_commit = off; set local search_path = " + schema}
}

// handle applies one page. An error is one that may be over when the page comes again.
func (r *runner) handle(msg *message.Message) error {
	page, ok := feed.PageOf(msg)
	if !ok {
		return errors.New("message is not a page of the feed")
	}
	ctx, t, began := msg.Context(), r.turn.Load(), time.Now()
	err := r.apply(ctx, t, page)
	stop, stops := errors.AsType[*Stop](err)
	switch {
	case err == nil:
		r.rest(ctx, began, page)
		return nil
	case errors.Is(err, errStale):
		r.log.WarnContext(ctx, "checkpoint is not where the page follows, reading it again", "after", page.After, "epoch", t.epoch)
		feed.Rewind(msg)
		msg.Nack()
		return nil
	case stops:
		r.stopped(ctx, stop)
		t.end()
		msg.Nack()
		return nil
	default:
		r.failed(page.After, page.Next, began, err)
		return fmt.Errorf("%s: page after %d: %w", r.topic(), page.After, err)
	}
}

// apply applies the facts of a page that are the projector's, and stops before the first that it cannot apply.
func (r *runner) apply(ctx context.Context, t *turn, page feed.Page) error {
	sound := len(page.Facts)
	for i, f := range page.Facts {
		if f.Err != nil && r.owns(f) {
			sound = i
			break
		}
	}
	if err := r.applyAll(ctx, t, page.After, page.Facts[:sound]); err != nil {
		return err
	}
	if sound < len(page.Facts) {
		bad := page.Facts[sound]
		return r.blame(ctx, t, bad, bad.Err)
	}
	return nil
}

// applyAll applies facts in pages that are as large as the projector can take.
func (r *runner) applyAll(ctx context.Context, t *turn, after eventstore.Position, facts []eventstore.Fact) error {
	for len(facts) > 0 {
		n := r.next(facts)
		if err := r.applySound(ctx, t, after, facts[:n]); err != nil {
			return err
		}
		if after, facts = facts[n-1].Position, facts[n:]; len(facts) > 0 && ctx.Err() != nil {
			return ctx.Err() // what is committed is committed; the rest is the next process's
		}
	}
	return nil
}

// applySound applies facts as one page, and where they cannot be applied as one, in halves: up to the first that cannot be applied.
func (r *runner) applySound(ctx context.Context, t *turn, after eventstore.Position, facts []eventstore.Fact) error {
	whole := r.commit(ctx, t, after, facts)
	long := errors.Is(whole, errTooLong)
	if whole == nil || errors.Is(whole, errStale) || transient(whole) && !long {
		return whole
	}
	var own []int
	for i, f := range facts {
		if r.owns(f) {
			own = append(own, i)
		}
	}
	if len(own) == 1 && long {
		r.log.WarnContext(ctx, "event takes longer than its limit, will retry with a longer one",
			"position", facts[own[0]].Position, "stream", facts[own[0]].Stream, "next_limit", r.bounds.slowLimit, "err", whole)
		return whole
	}
	if len(own) == 1 {
		// What is not the projector's and lies before it moves the checkpoint along with what comes before.
		if first := own[0]; first > 0 {
			if err := r.commit(ctx, t, after, facts[:first]); err != nil {
				return err
			}
		}
		return r.blame(ctx, t, facts[own[0]], whole)
	}
	if err := ctx.Err(); err != nil {
		return err // what is committed is committed; the rest is the next process's
	}
	r.log.WarnContext(ctx, "page is applied in halves", "after", after, "events", len(facts), "err", whole)
	middle := own[len(own)/2]
	if err := r.applyAll(ctx, t, after, facts[:middle]); err != nil {
		return err
	}
	return r.applyAll(ctx, t, facts[middle-1].Position, facts[middle:])
}

// blame is the Stop at an event, unless it was another process that got in the way.
func (r *runner) blame(ctx context.Context, t *turn, f eventstore.Fact, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pageLimit)
	defer cancel()
	row, readErr := r.table.read(ctx)
	if readErr != nil {
		return readErr
	}
	if row.epoch != t.epoch {
		return errStale
	}
	return &Stop{Projection: r.projector.Name(), Position: f.Position, Stream: f.Stream, Type: f.Type, Err: err}
}

// commit applies what is the projector's among facts and moves the checkpoint behind them, in one transaction.
func (r *runner) commit(ctx context.Context, t *turn, after eventstore.Position, facts []eventstore.Fact) error {
	began := time.Now()
	var own []eventstore.Fact
	for _, f := range facts {
		if r.owns(f) {
			own = append(own, f)
		}
	}
	limit := r.bounds.limit(own)
	ctx, cancel := r.within(ctx, limit)
	defer cancel()
	last := facts[len(facts)-1]
	var err error
	if len(own) == 0 {
		err = t.pass(after, last.Position, last.ID)
	} else {
		err = t.store(after, last.Position, last.ID, func(from eventstore.Position) error {
			return r.write(ctx, t, from, last, own)
		})
		if err = tooLong(ctx, limit, err); errors.Is(err, errTooLong) {
			r.bounds.exceeded(own)
		}
	}
	if err != nil {
		return err
	}
	if len(own) > 0 {
		r.bounds.applied(own, time.Since(began))
	}
	// Whoever waits is told last: what the hook does about the change is done by then.
	r.hooks.page(r.projector.Name(), len(facts), len(own), time.Since(began))
	r.progress.moved(last.Position)
	return nil
}

// write writes rows and checkpoint in one transaction.
func (r *runner) write(ctx context.Context, t *turn, from eventstore.Position, last eventstore.Fact, own []eventstore.Fact) error {
	return pgx.BeginTxFunc(ctx, r.db, beginIn(r.table.schema), func(tx pgx.Tx) error {
		if err := r.guarded(ctx, tx, own); err != nil {
			if tx.Conn().IsClosed() {
				return Transient(err)
			}
			return err
		}
		return r.table.move(ctx, tx, t.epoch, r.lease, from, last.Position, last.ID)
	})
}

// guarded is Apply whose panic is an error that its events are to blame for.
func (r *runner) guarded(ctx context.Context, tx pgx.Tx, own []eventstore.Fact) (err error) {
	defer panics.Recover(ctx, r.log, &err, "projector panicked")
	return r.projector.Apply(ctx, tx, own)
}
