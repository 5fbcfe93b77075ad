package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/projections"
)

// DropLeftovers drops what rebuilds left that ended without a switch-over, such as those of a
// killed process: shadows whose lease is over, with their external targets, and schemas that were
// live before. It leaves running rebuilds alone.
func (rt *Runtime) DropLeftovers(ctx context.Context) error { return rt.dropLeftovers(ctx, 0) }

// dropLeftovers is DropLeftovers, but retains for a time what an interrupted rebuild can continue.
func (rt *Runtime) dropLeftovers(ctx context.Context, retain time.Duration) error {
	var errs []error
	for _, r := range rt.runners {
		if !r.shadow.tryLock() {
			continue // this process rebuilds it
		}
		_, err := r.dropLeftovers(ctx, retain)
		r.shadow.unlock()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// watchLeftovers drops leftovers as soon as their leases are over, or they are too old to continue.
func (rt *Runtime) watchLeftovers(ctx context.Context) {
	for ctx.Err() == nil {
		_ = backoff.Pause(ctx, leftoversEvery, nil)
		names, err := leftovers(ctx, rt.db)
		if err == nil && len(names) > 0 {
			err = rt.dropLeftovers(ctx, resumable)
		}
		if err != nil && ctx.Err() == nil {
			rt.log.WarnContext(ctx, "drop of rebuild leftovers failed, will retry", "err", err)
		}
	}
}

// leftoversEvery is the pause between two checks for leftovers: about one lease.
const leftoversEvery = 5 * time.Second

// resumable is how long an interrupted rebuild can be continued. A round of erasure ends that earlier.
const resumable = 24 * time.Hour

// shadowLock is a lock that can be waited for as long as a context lasts. It has room for one value.
type shadowLock chan struct{}

func (l shadowLock) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l shadowLock) tryLock() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l shadowLock) unlock() { <-l }

// leftovers returns the schemas of shadows and those that were live before.
func leftovers(ctx context.Context, db *pgxpool.Pool) ([]string, error) {
	rows, err := db.Query(ctx, `select schemaname::text from pg_tables where tablename = 'checkpoint'
		and (right(schemaname, length($1)) = $1 or schemaname ~ ($2 || '[0-9]+$')) order by 1`, shadowSuffix, oldSuffix)
	if err != nil {
		return nil, fmt.Errorf("list leftovers of rebuilds: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list leftovers of rebuilds: %w", err)
	}
	return names, nil
}

// dropLeftovers drops what rebuilds of this projection left, but retains for a time what a rebuild
// can continue. held is true if another process may be rebuilding it. The caller holds shadow.
func (r *runner) dropLeftovers(ctx context.Context, retain time.Duration) (held bool, err error) {
	if err := r.dropOld(ctx); err != nil {
		return false, err
	}
	// A lease of this process is of a rebuild that ended.
	held, retained, err := dropShadow(ctx, r.db, r.projector.Name()+shadowSuffix, r.holder, retain)
	if held || retained || err != nil {
		return held, err
	}
	if external, ok := r.projector.(projections.External); ok {
		if err := external.Discard(ctx); err != nil {
			return false, fmt.Errorf("discard the shadow of the target: %w", err)
		}
	}
	return false, nil
}

// dropShadow drops the schema of a shadow, unless another holder has the lease on it, or its lease
// ended within a time: then retained is true.
func dropShadow(
	ctx context.Context, db *pgxpool.Pool, name, holder string, retain time.Duration,
) (held, retained bool, err error) {
	shadow := newCheckpoints(db, name)
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		row, found, err := shadow.find(ctx, tx, holder)
		if err != nil {
			return err
		}
		if found && retain > 0 && row.position > 0 {
			err := tx.QueryRow(ctx, `select until > clock_timestamp() - make_interval(secs => $1)
				from `+shadow.schema+`.checkpoint`, retain.Seconds()).Scan(&retained)
			if err != nil || retained {
				return err
			}
		}
		_, err = tx.Exec(ctx, "drop schema if exists "+shadow.schema+" cascade")
		return err
	})
	if _, is := errors.AsType[*heldError](err); is {
		return true, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("drop schema %s: %w", name, err)
	}
	return false, retained, nil
}

// dropOld drops the schemas of this projection that were live before.
func (r *runner) dropOld(ctx context.Context) error {
	rows, err := r.db.Query(ctx, `select nspname::text from pg_namespace
		where nspname ~ ('^' || $1 || '[0-9]+$')`, r.projector.Name()+oldSuffix)
	if err != nil {
		return fmt.Errorf("list old schemas: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list old schemas: %w", err)
	}
	for _, name := range names {
		if err := dropOldSchema(ctx, r.db, name); err != nil {
			return err
		}
	}
	return nil
}

// dropOldSchema drops a schema that was live before. It retries while a statement still uses the
// schema, each time shorter than Postgres waits before it looks for a deadlock and might end that
// statement.
func dropOldSchema(ctx context.Context, db *pgxpool.Pool, name string) error {
	for p := (backoff.Backoff{First: 20 * time.Millisecond, Longest: time.Second}); ; _ = p.Wait(ctx) {
		begin := pgx.TxOptions{BeginQuery: "begin; set local lock_timeout = '100ms'"}
		err := pgx.BeginTxFunc(ctx, db, begin, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "drop schema if exists "+pgx.Identifier{name}.Sanitize()+" cascade")
			return err
		})
		if err == nil {
			return nil
		}
		if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != lockNotAvailable || ctx.Err() != nil {
			return fmt.Errorf("drop schema %s: %w", name, err)
		}
	}
}

const lockNotAvailable = "55P03"
