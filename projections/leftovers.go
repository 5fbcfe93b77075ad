package projections

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DropLeftovers drops what rebuilds left that ended without a switch, such as those of a killed process: shadows whose lease is
// over, with what they keep outside the database, and schemas that were live before. What a rebuild is at work on stays.
func (rt *Runtime) DropLeftovers(ctx context.Context) error {
	var errs []error
	for _, r := range rt.runners {
		if !r.rebuilding.TryLock() {
			continue // by this process
		}
		_, err := r.dropLeftovers(ctx)
		r.rebuilding.Unlock()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// watchLeftovers drops leftovers as soon as their leases are over.
func (rt *Runtime) watchLeftovers(ctx context.Context) {
	for ctx.Err() == nil {
		wait(ctx, leftoversEvery)
		names, err := leftovers(ctx, rt.db)
		if err == nil && len(names) > 0 {
			err = rt.DropLeftovers(ctx)
		}
		if err != nil && ctx.Err() == nil {
			rt.log.WarnContext(ctx, "leftovers of rebuilds are not dropped, will retry", "err", err)
		}
	}
}

// leftoversEvery is how often leftovers are looked for: about as long as a lease.
const leftoversEvery = 10 * time.Second

// leftovers are the schemas that rebuilds build in, or replaced.
func leftovers(ctx context.Context, db *pgxpool.Pool) ([]string, error) {
	rows, err := db.Query(ctx, `select schemaname::text from pg_tables where tablename = 'checkpoint'
		and (right(schemaname, length($1)) = $1 or schemaname ~ ($2 || '[0-9]+$')) order by 1`, besideSuffix, oldSuffix)
	if err != nil {
		return nil, fmt.Errorf("look for leftovers of rebuilds: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for leftovers of rebuilds: %w", err)
	}
	return names, nil
}

// dropLeftovers drops what rebuilds of this projection left. held is true if another process may be building it. The caller holds
// the lock of rebuilds.
func (r *runner) dropLeftovers(ctx context.Context) (held bool, err error) {
	if err := r.dropOld(ctx); err != nil {
		return false, err
	}
	// A lease of this process is that of a rebuild which ended.
	if held, err = dropShadow(ctx, r.db, r.projector.Name()+besideSuffix, r.holder); held || err != nil {
		return held, err
	}
	if outside, ok := r.projector.(Outside); ok {
		if err := outside.Discard(ctx); err != nil {
			return false, fmt.Errorf("remove what was built beside: %w", err)
		}
	}
	return false, nil
}

// dropShadow drops the schema of a shadow, unless another holder has the lease on it.
func dropShadow(ctx context.Context, db *pgxpool.Pool, name, holder string) (held bool, err error) {
	shadow := newCheckpoints(db, name)
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, _, err := shadow.find(ctx, tx, holder); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "drop schema if exists "+shadow.schema+" cascade")
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
	rows, err := r.db.Query(ctx, `select nspname::text from pg_namespace where nspname ~ ('^' || $1 || '[0-9]+$')`, r.projector.Name()+oldSuffix)
	if err != nil {
		return fmt.Errorf("look for old schemas: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for old schemas: %w", err)
	}
	for _, name := range names {
		if err := dropOldSchema(ctx, r.db, name); err != nil {
			return err
		}
	}
	return nil
}

// dropOldSchema drops a schema that was live before. A statement that began on it is not disturbed: while one is at work, dropping
// is tried again, before Postgres would look for a deadlock between the two.
func dropOldSchema(ctx context.Context, db *pgxpool.Pool, name string) error {
	for p := newPause(20*time.Millisecond, time.Second); ; p.wait(ctx) {
		err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{BeginQuery: "begin; set local lock_timeout = '100ms'"}, func(tx pgx.Tx) error {
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
