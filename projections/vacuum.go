package projections

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TextKeeper is a projector that keeps customer text in tables of its schema.
type TextKeeper interface {
	// Name is the schema.
	Name() string
	// TextTables are those tables: what is deleted of them is to go from the disk.
	TextTables() []string
}

// Vacuum removes dead rows from the tables that hold customer text.
//
// When it returns nil, no version of a row that was deleted before the call is in any of them, and none of their indexes names it.
// Postgres may leave the bytes in the unused part of a page, and in its own log, until it writes there again: they are part of
// no row then, and no statement shows them.
type Vacuum struct {
	DB      *pgxpool.Pool
	Keepers []TextKeeper
	// Leftovers drops what rebuilds left that ended without a switch (Runtime.DropLeftovers); nil in tests.
	Leftovers func(context.Context) error
}

const (
	// vacuumPatience is how long transactions that still see what was deleted are waited for.
	vacuumPatience = 30 * time.Second
	// vacuumLook is how often it is looked whether they are over.
	vacuumLook = 50 * time.Millisecond
	// vacuumLock is how long one table is waited for that somebody else works on.
	vacuumLock = "30s"
)

// errBeside is a rebuild under way: what it builds may hold rows that the live tables have lost, until it has caught up.
var errBeside = errors.New("a projection is being rebuilt; it is tried again when that is over")

// Vacuum vacuums each table by itself, outside of any transaction, while readers and writers go on, and answers how many it was.
func (v Vacuum) Vacuum(ctx context.Context) (tables int, err error) {
	if err := v.dropLeftovers(ctx); err != nil {
		return 0, fmt.Errorf("vacuum: %w", err)
	}
	conn, err := v.DB.Acquire(ctx)
	if err != nil {
		return 0, fmt.Errorf("vacuum: %w", err)
	}
	defer conn.Release()
	if err := outlast(ctx, conn.Conn()); err != nil {
		return 0, fmt.Errorf("vacuum: %w", err)
	}
	if _, err := conn.Exec(ctx, "set lock_timeout = '"+vacuumLock+"'"); err != nil {
		return 0, fmt.Errorf("vacuum: %w", err)
	}
	defer func() {
		_, resetErr := conn.Exec(context.WithoutCancel(ctx), "reset lock_timeout")
		err = errors.Join(err, resetErr)
	}()
	for _, p := range v.Keepers {
		for _, table := range p.TextTables() {
			// Without the cut at the end, which would lock the readers out for a moment; and never without the indexes, which hold text too.
			name := pgx.Identifier{p.Name(), table}.Sanitize()
			if _, err := conn.Exec(ctx, "vacuum (index_cleanup on, truncate off) "+name, pgx.QueryExecModeSimpleProtocol); err != nil {
				return tables, fmt.Errorf("vacuum %s: %w", name, err)
			}
			tables++
		}
	}
	return tables, nil
}

// dropLeftovers drops what rebuilds left, since it holds text too, also that of a projection which this process does not run. While
// another process has the lease on a shadow it waits: the process may have been killed. The error is errBeside if the rebuild
// turns out to be at work.
func (v Vacuum) dropLeftovers(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, vacuumPatience)
	defer cancel()
	for p := newPause(vacuumLook, time.Second); ; p.wait(patience) {
		if v.Leftovers != nil {
			if err := v.Leftovers(ctx); err != nil {
				return err
			}
		}
		held, err := v.dropDead(ctx)
		if err != nil || !held {
			return err
		}
		if patience.Err() != nil {
			return errBeside
		}
	}
}

// dropDead drops every shadow without a lease, and every schema that was live before. held is true if a lease remains.
func (v Vacuum) dropDead(ctx context.Context) (held bool, err error) {
	names, err := leftovers(ctx, v.DB)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, besideSuffix) {
			if err := dropOldSchema(ctx, v.DB, name); err != nil {
				return false, err
			}
			continue
		}
		leased, err := dropShadow(ctx, v.DB, name, "")
		if err != nil {
			return false, err
		}
		held = held || leased
	}
	return held, nil
}

// outlast waits until no transaction of this database is left that began before the call: as long as one may see a deleted row, vacuum
// leaves it in its place.
func outlast(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, vacuumPatience)
	defer cancel()
	var horizon string
	if err := conn.QueryRow(ctx, `select pg_snapshot_xmax(pg_current_snapshot())::text`).Scan(&horizon); err != nil {
		return err
	}
	for {
		// The age of a number is how many transactions ago it was given out.
		var holders int
		var since *time.Time
		err := conn.QueryRow(ctx, `select count(*), min(xact_start) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
				and greatest(coalesce(age(backend_xmin), 0), coalesce(age(backend_xid), 0)) > age(($1::text::numeric % 4294967296)::text::xid)`, horizon).
			Scan(&holders, &since)
		if err != nil {
			return err
		}
		if holders == 0 {
			return nil
		}
		timer := time.NewTimer(vacuumLook)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%d transactions, the oldest since %s, still see what was deleted: %w", holders, since, ctx.Err())
		}
	}
}
