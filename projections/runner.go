package projections

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/panics"
)

// runner runs one projector whenever it has the turn among all processes on the database. To the router it is the subscriber
// whose messages are the pages of its turns.
type runner struct {
	projector Projector
	table     checkpoints
	db        *pgxpool.Pool
	store     eventstore.Store
	codec     *eventstore.Codec
	feed      *feed.Feed
	logID     func(context.Context) (uuid.UUID, error)
	holder    string
	lease     time.Duration
	log       *slog.Logger
	hooks     Hooks
	progress  *progress
	aside     *aside
	bounds    bounds
	// repeatLimit is how long one page may be repeated before the projection counts as stopped.
	repeatLimit time.Duration
	// trust is how long waiters may rely on what a lease holder last read of its checkpoint.
	trust time.Duration

	// rebuilding is held while the projection is built beside the live one by this process, and while what such a build left is removed.
	rebuilding sync.Mutex
	swept      bool // under rebuilding
	// emptiedFor is the target of another process that this one emptied its own for. Only await uses it.
	emptiedFor string
	// turn is the one whose pages are out; it changes only while no page is.
	turn atomic.Pointer[turn]
}

func (r *runner) topic() string {
	return fmt.Sprintf("%s@%d", r.projector.Name(), r.projector.Version())
}

// Subscribe hands out the pages of one turn after the other, until the context ends or the projector stops.
func (r *runner) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for p := newPause(100*time.Millisecond, 10*time.Second); ctx.Err() == nil; {
			err := panics.Call(ctx, r.log, "runner panicked, will go on", func() error {
				if t := r.await(ctx); t != nil {
					r.serve(ctx, t, topic, out)
				}
				r.standStill(ctx)
				return nil
			})
			if err != nil {
				p.wait(ctx)
			}
		}
	}()
	return out, nil
}

// Close closes the feed, which all runners share.
func (r *runner) Close() error { return r.feed.Close() }

// await waits for the turn. It is nil where the context ended or the projector stopped.
func (r *runner) await(ctx context.Context) *turn {
	pause := newPause(20*time.Millisecond, time.Second)
	standby, began := false, time.Now()
	for ctx.Err() == nil {
		t, err := r.take(ctx)
		if err == nil {
			return t
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
			r.stopped(ctx, stop)
			return nil
		case waits:
			if !standby {
				r.log.InfoContext(ctx, "standing by for a projection", "holder", held.holder)
			}
			standby, began = true, time.Now()
			r.progress.begun(0) // another process does the work
			r.emptyFor(ctx, held)
			// A turn that is given back early is noticed within half a second.
			wait(ctx, min(max(held.left, 10*time.Millisecond), 500*time.Millisecond))
		default:
			r.failed(0, 0, began, err)
			r.log.WarnContext(ctx, "projection not taken", "err", err)
			pause.wait(ctx)
		}
	}
	return nil
}

// take takes the turn where nobody has it, with a schema of this version, and looks whether the log is the one that the rows are built from.
func (r *runner) take(ctx context.Context) (*turn, error) {
	limited, cancel := context.WithTimeout(ctx, takeLimit)
	defer cancel()
	logID, err := r.logID(limited)
	if err != nil {
		return nil, fmt.Errorf("id of the log: %w", err)
	}
	if err := r.aside.refresh(limited); err != nil {
		return nil, err
	}
	var row checkpoint
	began := time.Now()
	err = pgx.BeginFunc(limited, r.db, func(tx pgx.Tx) error {
		var found bool
		row, found, err = r.table.find(limited, tx, r.holder)
		if _, held := errors.AsType[*heldError](err); err != nil && (!held || row.version == r.projector.Version()) {
			return err // a turn of a process of the same version is waited for, one of another version is not
		}
		if found && row.logID != logID {
			return r.stopFor(fmt.Errorf("its rows are built from log %s, and the event store holds log %s: connect it to its own log, or drop schema %s to have it built anew",
				row.logID, logID, r.projector.Name()))
		}
		if found && row.version != r.projector.Version() {
			return r.otherVersion(row)
		}
		if err := r.adopt(limited, row); err != nil {
			return err
		}
		if target := targetOf(r.projector); !found || row.target != target {
			r.log.InfoContext(limited, "building projection anew from the log", "version", r.projector.Version(), "before", row.version, "target", target)
			if resetter, ok := r.projector.(Resetter); ok {
				if err := resetter.Reset(limited); err != nil {
					return fmt.Errorf("reset: %w", err)
				}
			}
			if row, err = r.table.make(limited, tx, r.projector, row.epoch, logID); err != nil {
				return err
			}
		}
		row.epoch, err = r.table.raise(limited, tx, r.holder, r.lease)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := r.sameLog(limited, row); err != nil {
		stop, _ := errors.AsType[*Stop](err)
		return nil, errors.Join(err, r.table.release(limited, row.epoch, stop, nil))
	}
	t := newTurn(row.epoch, row.position, began)
	t.ctx, t.end = context.WithCancel(ctx)
	r.progress.change(func(p *progress) {
		p.position, p.active, p.epoch = row.position, true, row.epoch
		p.confirm = func(ctx context.Context) error { return r.confirm(ctx, t) }
	})
	r.progress.begun(row.position)
	r.sweepOnce(limited)
	return t, nil
}

// adopt finishes a switch of what is kept outside, where the process ended behind that of the schemas.
func (r *runner) adopt(ctx context.Context, row checkpoint) error {
	outside, ok := r.projector.(Outside)
	if !ok || row.target == "" || row.target == outside.Target() {
		return nil
	}
	if _, err := outside.Adopt(ctx, row.target); err != nil {
		return fmt.Errorf("put the new index into use: %w", err)
	}
	return nil
}

// sweepOnce removes what rebuilds of an earlier process left behind, when the first turn is taken.
func (r *runner) sweepOnce(ctx context.Context) {
	if !r.rebuilding.TryLock() {
		return
	}
	defer r.rebuilding.Unlock()
	if r.swept {
		return
	}
	held, err := r.dropLeftovers(ctx)
	if err != nil {
		r.log.WarnContext(ctx, "what a rebuild left is not removed yet", "err", err)
	}
	if held || err != nil {
		return
	}
	r.swept = true
}

// sameLog is a Stop where the log ends before the checkpoint or has another event there: an older copy, or one that went on by itself.
func (r *runner) sameLog(ctx context.Context, row checkpoint) error {
	if row.position == 0 {
		return nil
	}
	head, err := r.store.Head(ctx)
	if err != nil {
		return fmt.Errorf("head of the log: %w", err)
	}
	if head < row.position {
		return r.stopFor(fmt.Errorf("it was built up to position %d, and log %s ends at %d: the event store is an older copy", row.position, row.logID, head))
	}
	at, found, err := r.store.ReadAt(ctx, row.position)
	if err != nil {
		return fmt.Errorf("last applied event: %w", err)
	}
	// An event that was erased since cannot be compared.
	if found && row.last != nil && at.ID != *row.last {
		return r.stopFor(fmt.Errorf("the event at position %d of log %s is %s, and was %s when it was applied: the event store is a copy that went on by itself",
			row.position, row.logID, at.ID, *row.last))
	}
	return nil
}

func (r *runner) stopFor(err error) *Stop { return &Stop{Projection: r.projector.Name(), Err: err} }

// serve hands out the pages of a turn until it ends.
func (r *runner) serve(ctx context.Context, t *turn, topic string, out chan<- *message.Message) {
	r.turn.Store(t)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		r.guardedKeep(t)
	}()
	defer func() { // also after a panic
		t.end()
		<-kept
		r.progress.change(func(p *progress) { p.active = false })
	}()
	r.catchUpAlone(t)
	pages, err := r.feed.Subscribe(t.ctx, topic)
	if err != nil {
		// A closed feed: the router is on its way down.
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
	t.end()
	<-kept
	r.progress.change(func(p *progress) { p.active = false })
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	flushed := r.flush(limited, t)
	if errors.Is(flushed, errStale) {
		flushed = nil // a turn that was lost has nothing to give back
	}
	now := r.progress.look()
	if err := errors.Join(flushed, r.table.release(limited, t.epoch, now.stop, now.overdue(r.repeatLimit))); err != nil {
		r.log.WarnContext(ctx, "turn not given back", "err", err)
	}
	if err != nil {
		<-ctx.Done()
	}
}

// position is the checkpoint of the running turn, for the feed. It ends a turn that is over.
func (r *runner) position(ctx context.Context) (eventstore.Position, error) {
	t := r.turn.Load()
	row, err := r.table.read(ctx)
	if err != nil {
		return 0, err
	}
	if row.epoch != t.epoch {
		t.end()
		return 0, fmt.Errorf("turn of %s: %w", r.projector.Name(), errStale)
	}
	// A waiter that confirms the lease after the rewind reads the progress again, and finds it
	// rewound.
	r.progress.change(func(p *progress) { p.position = row.position })
	t.rewind(row.position)
	return row.position, nil
}

func (r *runner) owns(f eventstore.Fact) bool {
	return slices.Contains(r.projector.Families(), stream.Family(f.Stream)) && !r.aside.covers(f.Position, r.projector.Name())
}

// standStill waits where the projector stopped, until its event is set aside.
func (r *runner) standStill(ctx context.Context) {
	for {
		changed, now := r.aside.changed(), r.progress.look()
		stop := now.stop
		if stop == nil {
			return
		}
		if stop.Position > 0 && r.aside.covers(stop.Position, stop.Projection) {
			r.log.InfoContext(ctx, "projection goes on behind an event that was set aside", "position", stop.Position)
			r.progress.change(func(p *progress) { p.stop = nil })
			return
		}
		select {
		case <-changed:
		case <-now.changed: // a rebuild came past the event
		case <-ctx.Done():
			return
		}
	}
}

// stopped ends the work of the projector in this process, unless its event is set aside.
func (r *runner) stopped(ctx context.Context, stop *Stop) {
	r.log.ErrorContext(ctx, "projection stopped", "position", stop.Position, "stream", stop.Stream, "type", stop.Type, "err", stop.Err)
	r.progress.change(func(p *progress) { p.stop, p.repeat = stop, nil })
	r.hooks.stopped(r.projector.Name())
}

const (
	takeLimit    = time.Minute
	releaseLimit = 5 * time.Second
)
