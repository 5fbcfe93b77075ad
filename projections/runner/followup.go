package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections"
)

// sliceLimit bounds one slice of a follow-up.
const sliceLimit = pageLimit

// followUpPause is the longest pause between retries of a slice.
const followUpPause = 10 * time.Second

// doFollowUps does the follow-ups of a projection while the lease lasts, one slice at a time. Pages wait
// for one slice at most, and the pause after a slice leaves them half of the time.
func (r *runner) doFollowUps(l *lease) {
	if _, follows := r.projector.(projections.Following); !follows {
		return
	}
	pause := backoff.Backoff{First: 20 * time.Millisecond, Longest: followUpPause}
	for l.ctx.Err() == nil {
		began := time.Now()
		found := false
		err := panics.Call(l.ctx, r.log, "follow-up panicked, will retry", func() (err error) {
			found, err = r.doSlice(l.ctx, l)
			return err
		})
		switch {
		case l.ctx.Err() != nil:
			return
		case errors.Is(err, errStale):
			l.end()
			return
		case err != nil:
			r.progress.change(func(p *progress) { p.followUpErr = err })
			r.log.WarnContext(l.ctx, "slice of a follow-up not done, will retry", "err", err)
			_ = pause.Wait(l.ctx)
			continue
		case found:
			_ = backoff.Pause(l.ctx, time.Since(began), nil)
		default:
			select {
			case <-l.queued:
			case <-l.ctx.Done():
			}
		}
		pause = backoff.Backoff{First: 20 * time.Millisecond, Longest: followUpPause}
	}
}

// doAllFollowUps does the follow-ups of a shadow, for which no page waits.
func (r *runner) doAllFollowUps(l *lease) error {
	if _, follows := r.projector.(projections.Following); !follows {
		return nil
	}
	for p := (backoff.Backoff{First: 20 * time.Millisecond, Longest: time.Second}); l.ctx.Err() == nil; {
		found, err := r.doSlice(l.ctx, l)
		switch {
		case err == nil && !found:
			return nil
		case err == nil:
			p = backoff.Backoff{First: 20 * time.Millisecond, Longest: time.Second}
		case transient(err):
			r.log.WarnContext(l.ctx, "slice of a follow-up not done, will retry", "err", err)
			_ = p.Wait(l.ctx)
		default:
			return err
		}
	}
	return l.ctx.Err()
}

// doSlice does one slice in its own transaction, which the epoch of the lease guards. found is false if
// no follow-up is left.
func (r *runner) doSlice(ctx context.Context, l *lease) (found bool, err error) {
	following, follows := r.projector.(projections.Following)
	if !follows {
		return false, nil
	}
	l.moving.Lock()
	defer l.moving.Unlock()
	began := time.Now()
	ctx, cancel := r.within(ctx, sliceLimit)
	defer cancel()
	if _, external := r.projector.(projections.External); external {
		if err := r.confirm(ctx, l); err != nil {
			return false, err
		}
		ctx = projections.WithLease(ctx, func() error { return r.held(l) })
	}
	var work projections.FollowUp
	var done bool
	err = pgx.BeginTxFunc(ctx, r.db, beginIn(r.table.schema), func(tx pgx.Tx) error {
		work, found, done, err = projections.DoSlice(ctx, tx, recovering{following, r.log}, l.lastProject)
		if err != nil || !found {
			return err
		}
		return r.table.guard(ctx, tx, l.epoch, r.leaseTime)
	})
	if found {
		l.lastProject = work.Project // also after an error: it holds up no other project
	}
	if err != nil {
		return false, tooLong(ctx, sliceLimit, err)
	}
	if r.progress.snapshot().followUp != nil {
		r.progress.change(func(p *progress) { p.followUpErr = nil })
	}
	if !found {
		return false, nil
	}
	r.hooks.slice(r.projector.Name(), time.Since(began))
	if done {
		r.progress.change(func(*progress) {}) // wake those that wait for it
		r.log.InfoContext(ctx, "follow-up done", "kind", work.Kind, "position", work.Position)
	}
	return true, nil
}

// recovering is a projector whose panic in a slice is an error.
type recovering struct {
	projections.Following
	log *slog.Logger
}

func (p recovering) Slice(
	ctx context.Context, tx pgx.Tx, work projections.FollowUp,
) (cursor string, done bool, err error) {
	err = panics.Call(ctx, p.log, "projector panicked in a follow-up", func() (err error) {
		cursor, done, err = p.Following.Slice(ctx, tx, work)
		return err
	})
	return cursor, done, causeOf(err)
}

// guard renews the lease in the transaction of a slice. It returns errStale if another process has the lease.
func (c checkpoints) guard(ctx context.Context, tx pgx.Tx, epoch int64, lease time.Duration) error {
	tag, err := tx.Exec(ctx, `update `+c.schema+`.checkpoint set until = clock_timestamp() + make_interval(secs => $1)
		where epoch = $2`, lease.Seconds(), epoch)
	return staleUnlessOne(tag, err)
}

// hasFollowUps reports whether the pages up to now left follow-ups.
func hasFollowUps(ctx context.Context, db querier, schema string) (left bool, err error) {
	if err = db.QueryRow(ctx, `select exists (select from `+schema+`.follow_ups)`).Scan(&left); err != nil {
		return false, fmt.Errorf("look for follow-ups of %s: %w", schema, err)
	}
	return left, nil
}

// WaitFollowUp returns nil once a projection has no follow-up of a kind and a key: one that a page queued
// up to a position for which Wait returned nil is done. At the deadline of ctx it returns
// service-unavailable; the follow-up goes on.
func (w *Waiter) WaitFollowUp(ctx context.Context, name, kind string, key uuid.UUID) error {
	var changed <-chan struct{}
	pause := firstPoll
	for {
		if local, ok := w.local[name]; ok {
			changed = local.snapshot().changed
		}
		var left bool
		err := w.db.QueryRow(ctx, `select exists (select from `+pgx.Identifier{name}.Sanitize()+`.follow_ups
			where kind = $1 and key = $2)`, kind, key).Scan(&left)
		switch {
		case ctx.Err() != nil:
			return late(ctx, name)
		case err != nil && !transient(err):
			return fmt.Errorf("wait for a follow-up of projection %s: %w", name, err)
		case err == nil && !left:
			return nil
		}
		_ = backoff.Pause(ctx, pause, changed)
		pause = min(2*pause, maxPoll)
	}
}
