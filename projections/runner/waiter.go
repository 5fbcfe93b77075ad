package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/projections"
)

// Waiter reads the positions of projections: from memory if this process has the lease, confirmed
// by the checkpoint, and otherwise from the database.
type Waiter struct {
	db    *pgxpool.Pool
	local map[string]*progress
	// holder is the name of this process in the checkpoints.
	holder string
	// repeatLimit is how long one page may be repeated before a projection counts as stopped.
	repeatLimit time.Duration
	// projectors are those whose rows the queries of this process read.
	projectors map[string]projections.Projector
}

// NewWaiter makes a waiter for a process that runs no projections.
func NewWaiter(db *pgxpool.Pool) *Waiter {
	return &Waiter{
		db: db, local: map[string]*progress{}, projectors: map[string]projections.Projector{}, repeatLimit: repeatLimit,
	}
}

// The pauses between reads of the checkpoint of another process.
const (
	firstPoll = 20 * time.Millisecond
	maxPoll   = 200 * time.Millisecond
)

// Wait returns nil once every named projection has applied everything up to pos. It returns
// service-unavailable at once for a stopped projection that has not, and at the deadline of ctx for
// one that lags or cannot be read. If ctx is cancelled, it returns its cause.
func (w *Waiter) Wait(ctx context.Context, pos eventstore.Position, names ...string) error {
	for _, name := range names {
		if err := w.waitOne(ctx, pos, name); err != nil {
			return err
		}
	}
	return nil
}

// Request makes the named projections, where this process runs them, apply a position without a pause,
// for a caller that waits for it elsewhere.
func (w *Waiter) Request(pos eventstore.Position, names ...string) {
	for _, name := range names {
		if local, ok := w.local[name]; ok {
			local.request(pos)
		}
	}
}

func (w *Waiter) waitOne(ctx context.Context, pos eventstore.Position, name string) error {
	if pos == 0 {
		return nil
	}
	w.Request(pos, name)
	pause := firstPoll
	for {
		now, err := w.state(ctx, name, pos)
		switch {
		case ctx.Err() != nil:
			return late(ctx, name)
		case transient(err):
			_ = backoff.Pause(ctx, pause, nil)
			pause = min(2*pause, maxPoll)
			continue
		case err != nil:
			return fmt.Errorf("wait for projection %s: %w", name, err)
		case now.position >= pos:
			return nil
		case now.stop != nil, now.overdue(w.repeatLimit) != nil:
			return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
				"projection %s has stopped; read the reason at /readyz", name)
		}
		if now.active {
			select {
			case <-now.changed:
			case <-ctx.Done():
			}
			continue
		}
		_ = backoff.Pause(ctx, pause, now.changed)
		pause = min(2*pause, maxPoll)
	}
}

func late(ctx context.Context, name string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("wait for projection %s: %w", name, context.Cause(ctx))
	}
	return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "projection %s is late; retry", name)
}

// state returns the state of a projection. If this process has the lease, it comes from memory.
// A position of at least enough, unless that is 0, counts only if the checkpoint still is of this
// lease: another process may have taken it, or the database may have been restored to an older
// state.
func (w *Waiter) state(ctx context.Context, name string, enough eventstore.Position) (snapshot, error) {
	var now snapshot
	if local, ok := w.local[name]; ok {
		now = local.snapshot()
		if now.active && (enough == 0 || now.position < enough) {
			return now, nil
		}
		if now.active {
			err := now.confirm(ctx)
			if err != nil && !errors.Is(err, errStale) {
				return now, err
			}
			if now = local.snapshot(); err == nil && now.active {
				return now, nil
			}
			now.active = false // waiters read the database, until this process takes the lease again
		}
	}
	row, err := newCheckpoints(w.db, name).read(ctx)
	if err != nil {
		return now, err
	}
	now.position = row.position
	if p, local := w.projectors[name]; local && row.epoch > 0 && !projections.Reads(p, row.version) {
		now.position = 0 // no query of this process reads rows of that version
		return now, nil
	}
	// A projection that stopped here may run elsewhere, with a newer program.
	if row.holder != "" && row.holder != w.holder {
		now.stop, now.repeat = nil, row.repeat
		return now, nil
	}
	if now.stop == nil {
		now.stop = row.stopped
	}
	if now.repeat == nil {
		now.repeat = row.repeat
	}
	return now, nil
}

// Position returns the position up to which a projection has applied everything, 0 before its
// schema exists.
func (w *Waiter) Position(ctx context.Context, name string) (eventstore.Position, error) {
	now, err := w.state(ctx, name, 1)
	return now.position, err
}

// Stopped returns the *Stop of a projection that stopped and runs in no process, the *Repeat of one
// that has repeated a page for minutes, or nil. Any other error is a failed read.
func (w *Waiter) Stopped(ctx context.Context, name string) error {
	now, err := w.state(ctx, name, 0)
	if err != nil {
		return err
	}
	if now.stop != nil {
		return now.stop
	}
	if repeat := now.overdue(w.repeatLimit); repeat != nil {
		return repeat
	}
	return nil
}

// Watch sends on moved after a projection moves. Moves that come while the caller does not receive
// are one. A move in another process is noticed soon after, while Run runs; a waiter of NewWaiter
// notices none: poll also. stop ends the watch.
func (w *Waiter) Watch(name string) (moved <-chan struct{}, stop func()) {
	if local, ok := w.local[name]; ok {
		return local.watch()
	}
	return nil, func() {}
}
