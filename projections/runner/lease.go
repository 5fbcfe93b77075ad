package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections"
)

// lease is the right of this process to work on a projection, from taking its checkpoint to losing
// it.
type lease struct {
	epoch int64
	// target is the external target of the rows, "" for none.
	target string
	// version is that of the rows.
	version int
	ctx     context.Context
	end     context.CancelFunc

	// moving is held while the checkpoint moves, as long as a page takes to be written, and while a slice
	// of a follow-up is done.
	moving sync.Mutex
	// lastProject is the project of the last slice, under moving.
	lastProject uuid.UUID
	// queued holds a token after a page that left follow-ups.
	queued chan struct{}

	mu sync.Mutex
	// stored is the position of the checkpoint, reached that of the runner. reached is larger after
	// pages without events of the projector: to store each of those would cost every projection a
	// write for every append.
	stored, reached eventstore.Position
	last            uuid.UUID // the event at reached
	renewedAt       time.Time
	// confirmedAt is when the checkpoint was last known to be of this lease, at the position stored.
	confirmedAt time.Time
	// reading holds a token while one waiter reads the checkpoint for all.
	reading chan struct{}
	// storedRepeat is the Repeat that other processes can read. Only tick uses it.
	storedRepeat *Repeat
}

const (
	// defaultLease is how long a lease lasts after its last renewal.
	defaultLease = projections.LeaseTime
	// standbyPoll is the longest pause before a standby tries to take the lease again. With
	// defaultLease it is less than takeOverLimit.
	standbyPoll   = 500 * time.Millisecond
	takeOverLimit = 5 * time.Second
	// renewals is how often a lease is renewed in its time.
	renewals = 4
)

// newLease returns a lease whose checkpoint was found or created at began.
func newLease(epoch int64, at eventstore.Position, began time.Time) *lease {
	return &lease{
		epoch: epoch, stored: at, reached: at, renewedAt: began, confirmedAt: began, reading: make(chan struct{}, 1),
		queued: make(chan struct{}, 1),
	}
}

// trustFor is how long a lease holder relies on its last read of the checkpoint: less than it takes
// to replace a lost database by an older one.
const trustFor = 250 * time.Millisecond

// confirmLimit bounds one read of a checkpoint, for which other waiters wait.
const confirmLimit = 2 * time.Second

// idleFlush is how long the checkpoint may lag the runner. Only waiters of other processes notice
// it.
const idleFlush = 50 * time.Millisecond

// skip moves the runner past events that are not the projector's.
func (l *lease) skip(after, next eventstore.Position, last uuid.UUID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reached != after {
		return errStale
	}
	l.reached, l.last = next, last
	return nil
}

// advance moves runner and checkpoint past events that write applies. write moves the checkpoint,
// which is at from.
func (l *lease) advance(after, next eventstore.Position, last uuid.UUID,
	write func(from eventstore.Position) error,
) error {
	l.moving.Lock()
	defer l.moving.Unlock()
	stored, reached, _ := l.at()
	if reached != after {
		return errStale
	}
	began := time.Now()
	if err := write(stored); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored, l.reached, l.last = next, next, last
	l.renewedAt, l.confirmedAt = began, began
	return nil
}

// rewind moves the runner to the position of the checkpoint that was read.
func (l *lease) rewind(to eventstore.Position) {
	l.moving.Lock()
	defer l.moving.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored, l.reached = to, to
}

func (l *lease) at() (stored, reached eventstore.Position, last uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stored, l.reached, l.last
}

// age returns the time since the lease was renewed.
func (l *lease) age() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return passed(l.renewedAt)
}

// confirmedWithin reports whether the checkpoint was read at most a time ago, and not before since.
func (l *lease) confirmedWithin(within time.Duration, since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return passed(l.confirmedAt) < within && !l.confirmedAt.Before(since)
}

// trusted reports whether waiters may rely on the last read of the checkpoint. It must be recent, and
// a connection must have been watched since: if the database crashes, that connection ends.
func (r *runner) trusted(l *lease) bool {
	if r.watchedSince == nil {
		return false
	}
	since := r.watchedSince.Load()
	return since != nil && l.confirmedWithin(r.trust, *since)
}

func (l *lease) confirmed(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.After(l.confirmedAt) {
		l.confirmedAt = at
	}
}

// held returns errStale if another process may have the lease by now. Unlike maintain it needs no
// goroutine that runs: a process that was frozen may continue with any of them.
func (r *runner) held(l *lease) error {
	if l.age() > r.leaseTime {
		return errStale
	}
	return nil
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
func (r *runner) confirm(ctx context.Context, l *lease) error {
	if l.ctx.Err() != nil {
		return errStale
	}
	if r.trusted(l) {
		return nil
	}
	select {
	case l.reading <- struct{}{}:
		defer func() { <-l.reading }()
	case <-l.ctx.Done():
		return errStale
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.trusted(l) {
		return nil
	}
	stored, _, _ := l.at()
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, confirmLimit)
	defer cancel()
	row, err := r.table.read(limited)
	if err != nil {
		return err
	}
	if l.ctx.Err() != nil {
		return errStale // the lease ended during the read, which is no loss to log
	}
	if row.epoch != l.epoch || row.position < stored {
		r.log.WarnContext(ctx, "lease lost", "stored", stored, "found", row.position, "err", errStale)
		l.end()
		return errStale
	}
	l.confirmed(began)
	return nil
}

// flush moves the checkpoint to the position of the runner.
func (r *runner) flush(ctx context.Context, l *lease) error {
	l.moving.Lock()
	defer l.moving.Unlock()
	stored, reached, last := l.at()
	if reached == stored {
		return nil
	}
	began := time.Now()
	if err := r.table.moveAlone(ctx, l.epoch, r.leaseTime, stored, reached, last); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored, l.renewedAt, l.confirmedAt = reached, began, began
	return nil
}

// renew extends a lease without events, or during a long page. It returns errStale if the
// checkpoint is before the position stored: the database was restored to an older state.
func (r *runner) renew(ctx context.Context, l *lease) error {
	stored, _, _ := l.at()
	began := time.Now()
	position, err := r.table.renew(ctx, l.epoch, r.leaseTime)
	if err != nil {
		return err
	}
	if position < stored {
		return errStale
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewedAt, l.confirmedAt = began, began
	return nil
}

// maintainOrEnd is maintain, and ends the lease on a panic.
func (r *runner) maintainOrEnd(l *lease) {
	maintain := func() error { r.maintain(l); return nil }
	if panics.Call(l.ctx, r.log, "maintenance of a lease panicked, the lease ends", maintain) != nil {
		l.end()
	}
}

// maintain flushes the checkpoint and renews the lease. It ends a lease that another process took,
// or that it could not renew within its time, or whose external target was replaced: if the new one
// is empty, the next lease builds it.
func (r *runner) maintain(l *lease) {
	ticker := time.NewTicker(idleFlush)
	defer ticker.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-ticker.C:
		}
		err := r.tick(l)
		switch {
		case l.ctx.Err() != nil:
			return
		case l.target != projections.TargetOf(r.projector):
			r.log.InfoContext(l.ctx, "external target was replaced, the lease ends", "before", l.target)
			l.end()
			return
		case err != nil && (errors.Is(err, errStale) || l.age() > r.leaseTime):
			r.log.WarnContext(l.ctx, "lease lost", "err", err)
			l.end()
			return
		case err != nil:
			r.log.WarnContext(l.ctx, "lease not renewed, will retry", "err", err)
		}
	}
}

// tick stores a long repeat, and renews the lease or flushes the checkpoint.
func (r *runner) tick(l *lease) error {
	ctx, cancel := context.WithTimeout(l.ctx, max(r.leaseTime/renewals, time.Second))
	defer cancel()
	if repeat := r.progress.snapshot().overdue(r.repeatLimit); repeat != nil && !repeat.same(l.storedRepeat) {
		if err := r.table.storeRepeat(ctx, l.epoch, repeat); err != nil {
			return err
		}
		l.storedRepeat = repeat
	}
	if l.age() >= r.leaseTime/renewals {
		return r.renew(ctx, l)
	}
	if !l.moving.TryLock() {
		return nil // a page is being written, which moves the checkpoint
	}
	l.moving.Unlock()
	return r.flush(ctx, l)
}

// Lease is the lease of a projection in the database.
type Lease struct {
	// Holder is "" if no process ever had it. Each lease raises Epoch.
	Holder string
	Epoch  int64
	// Until is when another process may take over. The holder extends it.
	Until time.Time
}

// LeaseOf reads the current or last lease of a projection.
func (rt *Runtime) LeaseOf(ctx context.Context, projection string) (l Lease, err error) {
	var made bool
	schema := pgx.Identifier{projection}.Sanitize()
	err = rt.db.QueryRow(ctx, `select to_regclass('`+schema+`.checkpoint') is not null`).Scan(&made)
	if err != nil || !made {
		return l, wrapLease(projection, err)
	}
	rows, err := rt.db.Query(ctx, `select holder, epoch, until from `+schema+`.checkpoint`)
	if err != nil {
		return l, wrapLease(projection, err)
	}
	_, err = pgx.ForEachRow(rows, []any{&l.Holder, &l.Epoch, &l.Until}, func() error { return nil })
	return l, wrapLease(projection, err)
}

func wrapLease(projection string, err error) error {
	if err != nil {
		return fmt.Errorf("read lease of %s: %w", projection, err)
	}
	return nil
}

// Active reports, from memory, whether this process has the lease of a projection, and its epoch.
func (rt *Runtime) Active(projection string) (epoch int64, active bool) {
	p, ok := rt.waiter.local[projection]
	if !ok {
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch, p.active
}

// StoppedHere reports whether a projection stopped in this process and no other process continued
// it.
func (rt *Runtime) StoppedHere(ctx context.Context, projection string) bool {
	p, ok := rt.waiter.local[projection]
	if !ok || p.snapshot().stop == nil {
		return false
	}
	_, stopped := errors.AsType[*Stop](rt.waiter.Stopped(ctx, projection))
	return stopped
}

// clearForeign empties the external target of this process once another process feeds its own:
// later deletions reach only that one, and must not remain here. The next lease of this process
// rebuilds the target anyway.
//
// It keeps the target if the other lease names it, as a lease of this process from before a crash
// does.
func (r *runner) clearForeign(ctx context.Context, held *heldError) {
	external, ok := r.projector.(projections.External)
	if !ok || held.target == "" || held.target == r.clearedFor || held.target == external.Target() {
		return
	}
	limited, cancel := context.WithTimeout(ctx, takeLimit)
	defer cancel()
	err := func() error {
		err := r.promoteTarget(limited, checkpoint{target: held.target})
		if err != nil || held.target == external.Target() {
			return err
		}
		if shared, is := external.(projections.Shared); is && shared.SharesTarget() {
			return nil
		}
		if err := external.Reset(limited); err != nil {
			return err
		}
		if r.shadow.tryLock() { // nothing fills it
			err := external.Discard(limited)
			r.shadow.unlock()
			if err != nil {
				return err
			}
		}
		r.clearedFor = held.target
		r.log.InfoContext(ctx, "cleared the external target, another process feeds its own",
			"holder", held.holder, "target", held.target)
		return nil
	}()
	if err != nil && ctx.Err() == nil {
		r.log.WarnContext(ctx, "clearing of the external target failed, will retry", "holder", held.holder, "err", err)
	}
}
