package runner

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/ownership"
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
		names, err := leftovers(ctx, rt.db, rt.logID)
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

// leftovers returns the names in the database of the schemas of shadows and those that were live before, of one log.
func leftovers(
	ctx context.Context, db *pgxpool.Pool, logID func(context.Context) (uuid.UUID, error),
) ([]string, error) {
	found, err := ownership.Find(ctx, db, nil, "("+shadowSuffix+"|"+oldSuffix+"[0-9]+)$")
	if err != nil || len(found) == 0 {
		return nil, err
	}
	id, err := logID(ctx)
	if err != nil {
		return nil, fmt.Errorf("read id of the log: %w", err)
	}
	prefix := pg.SchemaPrefixOf(db)
	return slices.DeleteFunc(ofLog(found, id), prefix.IsOfAnother), nil
}

// ofLog returns the names of the schemas that are proved to be of a log. Others are left alone.
func ofLog(schemas []ownership.Schema, logID uuid.UUID) (names []string) {
	for _, s := range schemas {
		if s.Require(logID) == nil {
			names = append(names, s.Name)
		}
	}
	return names
}

// dropLeftovers drops what rebuilds of this projection left, but retains for a time what a rebuild
// can continue. held is true if another process may be rebuilding it. The caller holds shadow.
func (r *runner) dropLeftovers(ctx context.Context, retain time.Duration) (held bool, err error) {
	logID, err := r.logID(ctx)
	if err != nil {
		return false, fmt.Errorf("read id of the log: %w", err)
	}
	if err := r.dropOld(ctx, logID); err != nil {
		return false, err
	}
	// A lease of this process is of a rebuild that ended.
	held, retained, err := dropShadow(ctx, r.db, r.projector.Name()+shadowSuffix, logID, r.holder, retain)
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
// ended within a time: then retained is true. It leaves a schema alone that is not of the log.
func dropShadow(
	ctx context.Context, db *pgxpool.Pool, name string, logID uuid.UUID, holder string, retain time.Duration,
) (held, retained bool, err error) {
	shadow := newCheckpoints(db, name)
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		row, found, err := shadow.find(ctx, tx, holder, logID)
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
		return dropOurs(ctx, tx, shadow.inDatabase(), logID)
	})
	if _, is := errors.AsType[*ownership.ForeignError](err); is {
		return false, false, nil
	}
	if _, is := errors.AsType[*heldError](err); is {
		return true, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("drop schema %s: %w", shadow.inDatabase(), err)
	}
	return false, retained, nil
}

// dropOld drops the schemas of this projection that were live before.
func (r *runner) dropOld(ctx context.Context, logID uuid.UUID) error {
	found, err := ownership.Find(ctx, r.db, nil, "^"+regexp.QuoteMeta(r.table.inDatabase())+oldSuffix+"[0-9]+$")
	if err != nil {
		return fmt.Errorf("list old schemas: %w", err)
	}
	for _, name := range ofLog(found, logID) {
		if err := dropOldSchema(ctx, r.db, name, logID); err != nil {
			return err
		}
	}
	return nil
}

// dropOldSchema drops a schema that was live before. It retries while a statement still uses the
// schema, each time shorter than Postgres waits before it looks for a deadlock and might end that
// statement.
func dropOldSchema(ctx context.Context, db *pgxpool.Pool, name string, logID uuid.UUID) error {
	for p := (backoff.Backoff{First: 20 * time.Millisecond, Longest: time.Second}); ; _ = p.Wait(ctx) {
		begin := pgx.TxOptions{BeginQuery: "begin; set local lock_timeout = '100ms'"}
		err := pgx.BeginTxFunc(ctx, db, begin, func(tx pgx.Tx) error {
			return dropOurs(ctx, tx, name, logID)
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

// isOurs reports whether a schema exists. One that is not proved to be of the log is an
// *ownership.ForeignError.
func isOurs(ctx context.Context, db ownership.Querier, name string, logID uuid.UUID) (exists bool, err error) {
	schema, exists, err := ownership.One(ctx, db, name)
	if err != nil || !exists {
		return false, err
	}
	return true, schema.Require(logID)
}

// dropOurs drops a schema if it exists, and nothing that is not proved to be of the log.
func dropOurs(ctx context.Context, tx pgx.Tx, name string, logID uuid.UUID) error {
	exists, err := isOurs(ctx, tx, name, logID)
	if err != nil || !exists {
		return err
	}
	_, err = tx.Exec(ctx, "drop schema "+pgx.Identifier{name}.Sanitize()+" cascade")
	return err
}
