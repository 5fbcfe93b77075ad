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

// dropLeftovers is DropLeftovers, but keeps for a time what an interrupted rebuild can continue.
func (rt *Runtime) dropLeftovers(ctx context.Context, keep time.Duration) error {
	var errs []error
	for _, r := range rt.runners {
		if !r.rebuilding.TryLock() {
			continue // this process rebuilds it
		}
		_, err := r.dropLeftovers(ctx, keep)
		r.rebuilding.Unlock()
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

// leftoversEvery is the pause between looks for leftovers: about one lease.
const leftoversEvery = 5 * time.Second

// resumable is how long an interrupted rebuild can be continued. A round of erasure ends that earlier.
const resumable = 24 * time.Hour

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

// dropLeftovers drops what rebuilds of this projection left, but keeps for a time what a rebuild can
// continue. held is true if another process may be rebuilding it. The caller holds rebuilding.
func (r *runner) dropLeftovers(ctx context.Context, keep time.Duration) (held bool, err error) {
	if err := r.dropOld(ctx); err != nil {
		return false, err
	}
	// A lease of this process is of a rebuild that ended.
	external, ok := r.projector.(projections.External)
	if ok {
		keep = 0
	}
	if held, err = dropShadow(ctx, r.db, r.projector.Name()+shadowSuffix, r.holder, keep); held || err != nil {
		return held, err
	}
	if ok {
		if err := external.Discard(ctx); err != nil {
			return false, fmt.Errorf("discard the shadow of the target: %w", err)
		}
	}
	return false, nil
}

// dropShadow drops the schema of a shadow, unless another holder has the lease on it, or its lease
// ended within the time for which it is kept.
func dropShadow(
	ctx context.Context, db *pgxpool.Pool, name, holder string, keep time.Duration,
) (held bool, err error) {
	shadow := newCheckpoints(db, name)
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		row, found, err := shadow.find(ctx, tx, holder)
		if err != nil {
			return err
		}
		if found && keep > 0 && row.position > 0 {
			var kept bool
			err := tx.QueryRow(ctx, `select until > clock_timestamp() - make_interval(secs => $1)
				from `+shadow.schema+`.checkpoint`, keep.Seconds()).Scan(&kept)
			if err != nil || kept {
				return err
			}
		}
		_, err = tx.Exec(ctx, "drop schema if exists "+shadow.schema+" cascade")
		return err
	})
	if _, is := errors.AsType[*heldError](err); is {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("drop schema %s: %w", name, err)
	}
	return false, nil
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
