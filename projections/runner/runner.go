package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/pg/ownership"
	"github.com/annals-project/annals/projections"
)

// runner runs one projector whenever this process has its lease. It is the subscriber of a
// Watermill handler, whose messages are the pages of its leases.
type runner struct {
	projector projections.Projector
	table     checkpoints
	db        *pgxpool.Pool
	store     eventstore.Store
	codec     *eventstore.Codec
	feed      *feed.Feed
	logID     func(context.Context) (uuid.UUID, error)
	holder    string
	leaseTime time.Duration
	log       *slog.Logger
	hooks     Hooks
	progress  *progress
	setAside  *eventstore.SetAside
	bounds    bounds
	// again is the pause before the next try of a page that failed, besides that of the router. Only handleMessage
	// uses it.
	again backoff.Backoff
	// shared reads the log for several shadows; nil if this is the only one.
	shared *sharedReads
	// repeatLimit is how long one page may be repeated before the projection counts as stopped.
	repeatLimit time.Duration
	// trust is how long waiters may rely on the last read of the checkpoint.
	trust time.Duration
	// watchedSince is that of the Runtime, nil for a shadow, which trusts nothing.
	watchedSince *atomic.Pointer[time.Time]

	// rebuilding is true while this process rebuilds the projection.
	rebuilding atomic.Bool
	// shadow is held while the shadow of the projection is filled, and while a check drops what rebuilds left.
	shadow           shadowLock
	leftoversDropped bool // under shadow
	// clearedFor is the target of another process for which this process cleared its own. Only
	// awaitLease uses it.
	clearedFor string
	// upgrading is true while the rows of this version are built next to those that it continues.
	upgrading atomic.Bool
	// current is the lease whose pages are delivered. It changes only while no page is.
	current atomic.Pointer[lease]
}

func (r *runner) topic() string {
	return fmt.Sprintf("%s@%d", r.projector.Name(), r.projector.Version())
}

// Subscribe delivers the pages of one lease after the other until the context ends. After a stop it
// waits until an operator sets the event aside, or a rebuild passes it.
func (r *runner) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		var upgrades sync.WaitGroup
		defer upgrades.Wait()
		for p := (backoff.Backoff{First: 100 * time.Millisecond, Longest: 10 * time.Second}); ctx.Err() == nil; {
			err := panics.Call(ctx, r.log, "runner panicked, will retry", func() error {
				if l := r.awaitLease(ctx); l != nil {
					if l.version != r.projector.Version() && r.upgrading.CompareAndSwap(false, true) {
						upgrades.Go(func() { r.upgradeBeside(ctx) })
					}
					r.servePages(ctx, l, topic, out)
				}
				r.waitStopped(ctx)
				return nil
			})
			if err != nil {
				_ = p.Wait(ctx)
			}
		}
	}()
	return out, nil
}

// Close closes the feed, which all runners share.
func (r *runner) Close() error { return r.feed.Close() }

// awaitLease waits for the lease. It returns nil if the context ends or the projector stops.
func (r *runner) awaitLease(ctx context.Context) *lease {
	pause := backoff.Backoff{First: 20 * time.Millisecond, Longest: time.Second}
	standby, began := false, time.Now()
	for ctx.Err() == nil {
		l, err := r.takeLease(ctx)
		if err == nil {
			return l
		}
		held, waits := errors.AsType[*heldError](err)
		stop, stops := errors.AsType[*Stop](err)
		if outdated, ok := errors.AsType[*outdatedError](err); ok && ctx.Err() == nil {
			if err = r.upgrade(ctx, outdated); err == nil {
				continue
			}
			stop, stops = errors.AsType[*Stop](err)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case stops:
			r.recordStop(ctx, stop)
			return nil
		case waits:
			if !standby {
				r.log.InfoContext(ctx, "another process has the lease of a projection, standing by", "holder", held.holder)
			}
			standby, began = true, time.Now()
			r.progress.standsBy()
			r.clearForeign(ctx, held)
			// Notice soon that the lease was released early.
			_ = backoff.Pause(ctx, min(max(held.left, 10*time.Millisecond), standbyPoll), nil)
		default:
			r.recordFailure(0, 0, began, err)
			r.log.WarnContext(ctx, "lease not taken, will retry", "err", err)
			_ = pause.Wait(ctx)
		}
	}
	return nil
}

// takeLease takes the lease if no other process has it, creates the schema if it is missing, and
// checks that the rows belong to this log.
func (r *runner) takeLease(ctx context.Context) (*lease, error) {
	limited, cancel := context.WithTimeout(ctx, takeLimit)
	defer cancel()
	logID, err := r.logID(limited)
	if err != nil {
		return nil, fmt.Errorf("read id of the log: %w", err)
	}
	if err := r.setAside.Refresh(limited); err != nil {
		return nil, err
	}
	var row checkpoint
	began := time.Now()
	err = pgx.BeginTxFunc(limited, r.db, beginLease, func(tx pgx.Tx) error {
		var found bool
		row, found, err = r.table.claim(limited, tx, r.holder, logID)
		if _, held := errors.AsType[*heldError](err); err != nil && (!held || projections.Reads(r.projector, row.version)) {
			return err // wait for a process whose rows this one reads, and build next to one of others
		}
		if found && !projections.Reads(r.projector, row.version) {
			return r.checkVersion(row)
		}
		if err := r.promoteTarget(limited, row); err != nil {
			return err
		}
		if target := projections.TargetOf(r.projector); !found || row.target != target {
			r.log.InfoContext(limited, "building projection from position 0",
				"version", r.projector.Version(), "before", row.version, "target", target)
			if external, ok := r.projector.(projections.External); ok {
				if err := external.Reset(limited); err != nil {
					return fmt.Errorf("reset the external target: %w", err)
				}
			}
			if row, err = r.table.create(limited, tx, r.projector, row.epoch, logID); err != nil {
				return err
			}
		}
		row.epoch, err = r.table.takeLease(limited, tx, r.holder, r.leaseTime)
		return err
	})
	if foreign, is := errors.AsType[*ownership.ForeignError](err); is {
		return nil, r.stopFor(foreign)
	}
	if err != nil && ctx.Err() != nil { // the transaction may have been committed all the same
		return nil, errors.Join(err, r.afterEnd(ctx, func(ctx context.Context) error {
			return r.table.releaseOf(ctx, r.holder)
		}))
	}
	if err != nil {
		return nil, err
	}
	if err := r.checkLog(limited, row); err != nil {
		stop, _ := errors.AsType[*Stop](err)
		return nil, errors.Join(err, r.afterEnd(ctx, func(ctx context.Context) error {
			return r.table.release(ctx, row.epoch, stop, nil)
		}))
	}
	l := newLease(row.epoch, row.position, began)
	l.target, l.version = projections.TargetOf(r.projector), row.version
	l.ctx, l.end = context.WithCancel(ctx)
	r.progress.change(func(p *progress) {
		p.position, p.active, p.epoch = row.position, true, row.epoch
		p.confirm = func(ctx context.Context) error { return r.confirm(ctx, l) }
	})
	r.progress.leased(row.position)
	r.dropLeftoversOnce(limited)
	return l, nil
}

// afterEnd releases a lease that is not used, also after the end of the context: another process would wait for it, and
// a rebuild be refused, until it ends by itself.
func (*runner) afterEnd(ctx context.Context, release func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	return release(ctx)
}

// promoteTarget completes the switch-over of an external target if the process ended between the
// switch of the schemas and that of the target.
func (r *runner) promoteTarget(ctx context.Context, row checkpoint) error {
	external, ok := r.projector.(projections.External)
	if !ok || row.target == "" || row.target == external.Target() {
		return nil
	}
	if _, err := external.Promote(ctx, row.target); err != nil {
		return fmt.Errorf("promote the external target: %w", err)
	}
	return nil
}

// dropLeftoversOnce drops what rebuilds of an earlier process left, with the first lease.
func (r *runner) dropLeftoversOnce(ctx context.Context) {
	if !r.shadow.tryLock() {
		return
	}
	defer r.shadow.unlock()
	if r.leftoversDropped {
		return
	}
	held, err := r.dropLeftovers(ctx, resumable)
	if err != nil {
		r.log.WarnContext(ctx, "drop of rebuild leftovers failed, will retry", "err", err)
	}
	if held || err != nil {
		return
	}
	r.leftoversDropped = true
}

// errDiverged is an errOlderCopy that received other events.
var (
	errOlderCopy = errors.New("an older copy")
	errDiverged  = fmt.Errorf("%w that has diverged", errOlderCopy)
)

// checkLog returns a Stop if the log ends before the checkpoint or has another event there: it is
// an older copy, or a copy that received other events.
func (r *runner) checkLog(ctx context.Context, row checkpoint) error {
	if row.position == 0 {
		return nil
	}
	head, err := r.store.Head(ctx)
	if err != nil {
		return fmt.Errorf("read head of the log: %w", err)
	}
	if head < row.position {
		return r.stopFor(fmt.Errorf("its rows are built up to position %d, and log %s ends at %d: "+
			"the event store is %w",
			row.position, row.logID, head, errOlderCopy))
	}
	at, found, err := r.store.ReadAt(ctx, row.position)
	if err != nil && !errors.Is(err, eventstore.ErrNoEvent) {
		return fmt.Errorf("read last applied event: %w", err)
	}
	if err != nil {
		return r.stopFor(fmt.Errorf("its rows are built up to position %d, and log %s has no event there: "+
			"the event store is %w", row.position, row.logID, errDiverged))
	}
	// An event that has been erased since cannot be compared.
	if found && row.last != nil && at.ID != *row.last {
		return r.stopFor(fmt.Errorf("event at position %d of log %s is %s, and was %s when it was applied: "+
			"the event store is %w",
			row.position, row.logID, at.ID, *row.last, errDiverged))
	}
	return nil
}

func (r *runner) stopFor(err error) *Stop { return &Stop{Projection: r.projector.Name(), Err: err} }

// servePages delivers the pages of a lease until it ends, then releases it.
func (r *runner) servePages(ctx context.Context, l *lease, topic string, out chan<- *message.Message) {
	r.current.Store(l)
	var beside sync.WaitGroup
	beside.Go(func() { r.maintainOrEnd(l) })
	beside.Go(func() { r.doFollowUps(l) })
	defer func() { // also after a panic
		l.end()
		beside.Wait()
		r.progress.change(func(p *progress) { p.active = false })
	}()
	r.catchUpFirst(l)
	pages, err := r.feed.Subscribe(l.ctx, topic)
	if err != nil {
		// The feed is closed: the router is stopping.
		r.log.WarnContext(ctx, "feed not subscribed", "err", err)
	} else {
		for page := range pages {
			select {
			case out <- page:
			case <-ctx.Done():
				page.Nack()
			}
		}
	}
	l.end()
	beside.Wait()
	r.progress.change(func(p *progress) { p.active = false })
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	flushed := r.flush(limited, l)
	if errors.Is(flushed, errStale) {
		flushed = nil // a lost lease has nothing to flush
	}
	now := r.progress.snapshot()
	if err := errors.Join(flushed, r.table.release(limited, l.epoch, now.stop, now.overdue(r.repeatLimit))); err != nil {
		r.log.WarnContext(ctx, "lease not released, it ends by itself", "err", err)
	}
	if err != nil {
		<-ctx.Done()
	}
}

// position returns the checkpoint of the current lease, for the feed. It ends a lease that is over.
func (r *runner) position(ctx context.Context) (eventstore.Position, error) {
	l := r.current.Load()
	row, err := r.table.read(ctx)
	if err != nil {
		return 0, err
	}
	if row.epoch != l.epoch {
		l.end()
		return 0, fmt.Errorf("lease of %s: %w", r.projector.Name(), errStale)
	}
	// A waiter that confirms the lease after the rewind reads the progress again, and finds it
	// rewound.
	r.progress.change(func(p *progress) { p.position = row.position })
	l.rewind(row.position)
	return row.position, nil
}

// waitStopped waits while the projector is stopped, until its event is set aside or a rebuild
// passes it.
func (r *runner) waitStopped(ctx context.Context) {
	for {
		changed, now := r.setAside.Changed(), r.progress.snapshot()
		stop := now.stop
		if stop == nil {
			return
		}
		if stop.Position > 0 && r.setAside.Covers(stop.Position, stop.Projection) {
			r.log.InfoContext(ctx, "projection continues after an event that was set aside", "position", stop.Position)
			r.progress.change(func(p *progress) { p.stop = nil })
			return
		}
		select {
		case <-changed:
		case <-now.changed: // a rebuild may have passed the event
		case <-ctx.Done():
			return
		}
	}
}

// recordStop records that the projector stopped in this process.
func (r *runner) recordStop(ctx context.Context, stop *Stop) {
	r.log.ErrorContext(ctx, "projection stopped",
		"position", stop.Position, "stream", stop.Stream, "type", stop.Type, "event_id", stop.EventID,
		"err", stop.Err)
	r.progress.change(func(p *progress) { p.stop, p.repeat = stop, nil })
	r.hooks.stopped(r.projector.Name())
}

// errStale means that the checkpoint is not at the start of the page: another process took the
// lease, or the database was restored to an older state.
var errStale = errors.New("checkpoint has moved")

const (
	takeLimit    = time.Minute
	releaseLimit = 5 * time.Second
)

// Queries are written for one version of the rows, and perhaps for the one before. A process that
// finds rows of an older version builds its own in a shadow and switches over. Until then it feeds and
// reads the older rows if its projector continues them; if not, its queries of the projection fail, and
// processes of the older version continue with the older rows. A process that finds rows of a newer
// version stops the projection.

// outdatedError means that the rows are of an older version.
type outdatedError struct{ before, after int }

func (e *outdatedError) Error() string {
	return fmt.Sprintf("its rows are of version %d, and version %d is being built in a shadow", e.before, e.after)
}

func (r *runner) checkVersion(row checkpoint) error {
	if row.version < r.projector.Version() {
		return &outdatedError{before: row.version, after: r.projector.Version()}
	}
	return r.stopFor(fmt.Errorf("its rows are of version %d of a newer program, and this one reads version %d: "+
		"start the newer program, or rebuild the projection with this one",
		row.version, r.projector.Version()))
}

// upgrade builds the rows of this version in a shadow and switches over.
func (r *runner) upgrade(ctx context.Context, outdated *outdatedError) error {
	r.progress.change(func(p *progress) { p.lastErr = outdated })
	r.log.InfoContext(ctx, "building new version of projection in a shadow",
		"version", outdated.after, "before", outdated.before)
	return r.rebuild(ctx, RebuildOptions{}, func(p RebuildProgress) {
		r.progress.change(func(now *progress) {
			now.lastErr = fmt.Errorf("%w: position %d of %d", outdated, p.Position, max(p.Head, eventstore.Position(1)))
		})
	})
}

// upgradePause is the longest pause before a failed upgrade next to the live rows is tried again.
const upgradePause = 10 * time.Second

// upgradeBeside builds the rows of this version in a shadow and switches over, while this process
// feeds the older rows. It retries until the rows are of this version or the context ends: a lease
// that passes to another process and back interrupts it no further than the build of a page.
func (r *runner) upgradeBeside(ctx context.Context) {
	defer r.upgrading.Store(false)
	r.log.InfoContext(ctx, "building new version of projection next to the one in use", "version", r.projector.Version())
	for p := (backoff.Backoff{First: 100 * time.Millisecond, Longest: upgradePause}); ctx.Err() == nil; _ = p.Wait(ctx) {
		err := panics.Call(ctx, r.log, "upgrade of a projection panicked, will retry", func() error {
			return r.rebuild(ctx, RebuildOptions{}, nil)
		})
		if err == nil || ctx.Err() != nil {
			return
		}
		row, failed := r.table.read(ctx)
		if failed == nil && row.version >= r.projector.Version() {
			return // another process or an operator was faster
		}
		r.log.WarnContext(ctx, "new version of projection not built, will retry", "err", errors.Join(err, failed))
	}
}
