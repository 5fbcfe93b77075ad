package projections

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
)

// turn is the time from taking the checkpoint of a projection to losing it.
type turn struct {
	epoch int64
	ctx   context.Context
	end   context.CancelFunc

	// moving is held while the checkpoint is moved, which takes as long as the rows of a page take.
	moving sync.Mutex

	mu sync.Mutex
	// stored is where the checkpoint is, reached where the runner is: further by pages that held nothing for the projector.
	// Those would otherwise cost every projection a write for every append.
	stored, reached eventstore.Position
	last            uuid.UUID // the event at reached
	prolonged       time.Time
	// seen is when the checkpoint was last known to be of this lease and at the position stored.
	seen time.Time
	// looking holds a token while one waiter reads the checkpoint for all.
	looking chan struct{}
	// recorded is the Repeat that other processes can read. Only keep uses it.
	recorded *Repeat
}

// newTurn returns a lease whose checkpoint was found or created at began.
func newTurn(epoch int64, at eventstore.Position, began time.Time) *turn {
	return &turn{epoch: epoch, stored: at, reached: at, prolonged: began, seen: began, looking: make(chan struct{}, 1)}
}

// trusted is how long a lease holder relies on its last read of the checkpoint: less than it takes
// to replace a lost database by an older one.
const trusted = 250 * time.Millisecond

// confirmLimit bounds one read of a checkpoint, for which other waiters wait.
const confirmLimit = 2 * time.Second

// idleFlush is how long the checkpoint may stay behind the runner. Waiters of this process do not notice it, those of others do.
const idleFlush = 50 * time.Millisecond

// pass moves on behind events that hold nothing for the projector.
func (t *turn) pass(after, next eventstore.Position, last uuid.UUID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reached != after {
		return errStale
	}
	t.reached, t.last = next, last
	return nil
}

// store moves on behind events that write makes rows of, together with the checkpoint, which it finds at from.
func (t *turn) store(after, next eventstore.Position, last uuid.UUID, write func(from eventstore.Position) error) error {
	t.moving.Lock()
	defer t.moving.Unlock()
	stored, reached, _ := t.at()
	if reached != after {
		return errStale
	}
	began := time.Now()
	if err := write(stored); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stored, t.reached, t.last = next, next, last
	t.prolonged, t.seen = began, began
	return nil
}

// rewind goes back, or on, to where the checkpoint was found.
func (t *turn) rewind(to eventstore.Position) {
	t.moving.Lock()
	defer t.moving.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stored, t.reached = to, to
}

func (t *turn) at() (stored, reached eventstore.Position, last uuid.UUID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stored, t.reached, t.last
}

// age is how long ago the turn was prolonged.
func (t *turn) age() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return passed(t.prolonged)
}

// known reports whether the checkpoint was read within a time.
func (t *turn) known(within time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return passed(t.seen) < within
}

func (t *turn) saw(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at.After(t.seen) {
		t.seen = at
	}
}

// passed returns the time since an instant. The monotonic clock stops while a machine is suspended,
// the wall clock does not.
func passed(since time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// confirm returns nil if the checkpoint is of this lease and not before the position stored, as
// read within the trusted time or now. errStale ends the lease; any other error is a failed read.
// Of concurrent callers only one reads.
func (r *runner) confirm(ctx context.Context, t *turn) error {
	if t.ctx.Err() != nil {
		return errStale
	}
	if t.known(r.trust) {
		return nil
	}
	select {
	case t.looking <- struct{}{}:
		defer func() { <-t.looking }()
	case <-t.ctx.Done():
		return errStale
	case <-ctx.Done():
		return ctx.Err()
	}
	if t.known(r.trust) {
		return nil
	}
	stored, _, _ := t.at()
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, confirmLimit)
	defer cancel()
	row, err := r.table.read(limited)
	if err != nil {
		return err
	}
	if row.epoch != t.epoch || row.position < stored {
		r.log.WarnContext(ctx, "turn lost", "stored", stored, "found", row.position, "err", errStale)
		t.end()
		return errStale
	}
	t.saw(began)
	return nil
}

// flush moves the checkpoint to where the runner is.
func (r *runner) flush(ctx context.Context, t *turn) error {
	t.moving.Lock()
	defer t.moving.Unlock()
	stored, reached, last := t.at()
	if reached == stored {
		return nil
	}
	began := time.Now()
	if err := r.table.moveAlone(ctx, t.epoch, r.lease, stored, reached, last); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stored, t.prolonged, t.seen = reached, began, began
	return nil
}

// renew prolongs a turn in which nothing happens, or a page takes long. It is errStale where the checkpoint is behind what was
// stored: the database fell back.
func (r *runner) renew(ctx context.Context, t *turn) error {
	stored, _, _ := t.at()
	began := time.Now()
	position, err := r.table.renew(ctx, t.epoch, r.lease)
	if err != nil {
		return err
	}
	if position < stored {
		return errStale
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.prolonged, t.seen = began, began
	return nil
}

// guardedKeep is keep whose panic ends the turn.
func (r *runner) guardedKeep(t *turn) {
	if panics.Call(t.ctx, r.log, "keeping a turn panicked", func() error { r.keep(t); return nil }) != nil {
		t.end()
	}
}

// keep keeps the checkpoint of a turn up to date and the turn prolonged, and ends it where it is over, or cannot be prolonged
// for as long as the lease is.
func (r *runner) keep(t *turn) {
	ticker := time.NewTicker(idleFlush)
	defer ticker.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-ticker.C:
		}
		err := r.tend(t)
		switch {
		case t.ctx.Err() != nil:
			return
		case err != nil && (errors.Is(err, errStale) || t.age() > r.lease):
			r.log.WarnContext(t.ctx, "turn lost", "err", err)
			t.end()
			return
		case err != nil:
			r.log.WarnContext(t.ctx, "turn not prolonged", "err", err)
		}
	}
}

// tend does what is due of keep's work.
func (r *runner) tend(t *turn) error {
	ctx, cancel := context.WithTimeout(t.ctx, max(r.lease/4, time.Second))
	defer cancel()
	if repeat := r.progress.look().overdue(r.repeatLimit); repeat != nil && !repeat.same(t.recorded) {
		if err := r.table.repeats(ctx, t.epoch, repeat); err != nil {
			return err
		}
		t.recorded = repeat
	}
	if t.age() >= r.lease/4 {
		return r.renew(ctx, t)
	}
	if !t.moving.TryLock() {
		return nil // a page is at work, and takes the checkpoint along
	}
	t.moving.Unlock()
	return r.flush(ctx, t)
}
