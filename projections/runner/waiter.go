package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// progress is the state of a projection as this process knows it.
type progress struct {
	mu       sync.Mutex
	position eventstore.Position
	// active is true while this process has the lease: position is then the newest, once confirm
	// returns nil.
	active  bool
	confirm func(context.Context) error
	epoch   int64 // of the newest lease of this process
	stop    *Stop
	lastErr error
	// followUpErr is why the last slice of a follow-up failed, nil once one succeeds.
	followUpErr error
	repeat      *Repeat
	// changed is closed at the next change; nil without a waiter.
	changed chan struct{}
	// requested is the newest position that a caller waits, or waited, for; a newer one closes woken.
	requested eventstore.Position
	woken     chan struct{}
	watchers  map[chan struct{}]struct{}
}

// snapshot is a copy of a progress.
type snapshot struct {
	position eventstore.Position
	active   bool
	stop     *Stop
	lastErr  error
	followUp error
	repeat   *Repeat
	changed  <-chan struct{}
	confirm  func(context.Context) error
}

func (p *progress) snapshot() snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return snapshot{
		position: p.position, active: p.active, stop: p.stop, lastErr: p.lastErr, repeat: p.repeat,
		followUp: p.followUpErr, changed: p.changed, confirm: p.confirm,
	}
}

// change changes the progress and wakes its waiters.
func (p *progress) change(how func(*progress)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	how(p)
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	for w := range p.watchers {
		select {
		case w <- struct{}{}:
		default: // it has not received the last wake-up yet
		}
	}
}

func (p *progress) advanced(to eventstore.Position) {
	p.change(func(p *progress) { p.position, p.lastErr, p.repeat = to, nil, nil })
}

// isWatchedElsewhere reports whether something watches the projection while this process does not
// have its lease.
func (p *progress) isWatchedElsewhere() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.active && len(p.watchers) > 0
}

func (p *progress) watch() (<-chan struct{}, func()) {
	w := make(chan struct{}, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watchers == nil {
		p.watchers = map[chan struct{}]struct{}{}
	}
	p.watchers[w] = struct{}{}
	return w, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watchers, w)
	}
}

// standsBy records that another process has the lease: what failed here is over, and the other process
// records whether the page fails there too.
func (p *progress) standsBy() {
	p.change(func(p *progress) { p.lastErr, p.repeat = nil, nil })
}

// leased records that this process took the lease at a position: the failure to take it is over. A page
// that failed there still fails, until it comes again.
func (p *progress) leased(at eventstore.Position) {
	p.change(func(p *progress) {
		if p.repeat == nil || p.repeat.Next == 0 || at > p.repeat.After {
			p.lastErr, p.repeat = nil, nil
		}
	})
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
