package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/projections"
)

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
