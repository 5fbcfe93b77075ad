package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/projections"
)

// Vacuum purges dead rows from the tables that hold customer text.
//
// When it returns nil, no table holds a version of a row that was deleted before the call, and no
// index refers to one. Postgres may leave the bytes in the unused part of a page, and in its WAL,
// until it overwrites them: they belong to no row, and no statement returns them.
type Vacuum struct {
	DB *pgxpool.Pool
	// LogID returns the id of the log whose projections the database holds.
	LogID      func(context.Context) (uuid.UUID, error)
	Projectors []projections.Projector
	// Leftovers drops what rebuilds left (Runtime.DropLeftovers); nil in tests.
	Leftovers func(context.Context) error
	// Others names further tables with customer text; it may be nil.
	Others func(context.Context) ([]pgx.Identifier, error)
}

const (
	// vacuumTimeout bounds the wait for transactions that still see deleted rows.
	vacuumTimeout = 30 * time.Second
	// vacuumPoll is the pause between looks for them.
	vacuumPoll = 50 * time.Millisecond
	// vacuumLock bounds the wait for the lock of one table.
	vacuumLock = "30s"
)

// errRebuilding means that a rebuild runs: its shadow may hold rows that were deleted from the live
// tables, until it has caught up.
var errRebuilding = errors.New("a projection is being rebuilt, vacuum waits for its end")

// Vacuum vacuums each table separately, outside of a transaction, while readers and writers
// continue. It returns the number of tables.
func (v Vacuum) Vacuum(ctx context.Context) (tables int, err error) {
	if err := v.dropLeftovers(ctx); err != nil {
		return 0, fmt.Errorf("vacuum: %w", err)
	}
	conn, err := v.DB.Acquire(ctx)
	if err != nil {
		return 0, fmt.Errorf("vacuum: %w", err)
	}
	defer conn.Release()
	if err := waitOlderTxs(ctx, conn.Conn()); err != nil {
		return 0, fmt.Errorf("vacuum: %w", err)
	}
	if _, err := conn.Exec(ctx, "set lock_timeout = '"+vacuumLock+"'"); err != nil {
		return 0, fmt.Errorf("vacuum: %w", err)
	}
	defer func() {
		_, resetErr := conn.Exec(context.WithoutCancel(ctx), "reset lock_timeout")
		err = errors.Join(err, resetErr)
	}()
	var all []pgx.Identifier
	if v.Others != nil {
		if all, err = v.Others(ctx); err != nil {
			return 0, fmt.Errorf("vacuum: %w", err)
		}
	}
	for _, p := range v.Projectors {
		for _, table := range p.TextTables() {
			all = append(all, pgx.Identifier{p.Name(), table})
		}
	}
	for _, table := range all {
		// Do not truncate the table, which would lock readers out. Always clean the indexes, which hold
		// text too.
		name := table.Sanitize()
		_, err := conn.Exec(ctx, "vacuum (index_cleanup on, truncate off) "+name, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return tables, fmt.Errorf("vacuum %s: %w", name, err)
		}
		tables++
	}
	return tables, nil
}

// dropLeftovers drops what rebuilds left, which holds text too, also that of projections that this
// process does not run. It waits while another process has the lease of a shadow, since that
// process may have been killed. It returns errRebuilding if the rebuild runs.
func (v Vacuum) dropLeftovers(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, vacuumTimeout)
	defer cancel()
	for p := (backoff.Backoff{First: vacuumPoll, Longest: time.Second}); ; _ = p.Wait(limited) {
		if v.Leftovers != nil {
			if err := v.Leftovers(ctx); err != nil {
				return err
			}
		}
		held, err := v.dropDead(ctx)
		if err != nil || !held {
			return err
		}
		if limited.Err() != nil {
			return errRebuilding
		}
	}
}

// dropDead drops every shadow without a lease, and every schema that was live before. held is true
// if a lease remains.
func (v Vacuum) dropDead(ctx context.Context) (held bool, err error) {
	names, err := leftovers(ctx, v.DB, v.LogID)
	if err != nil || len(names) == 0 {
		return false, err
	}
	logID, err := v.LogID(ctx)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, shadowSuffix) {
			if err := dropOldSchema(ctx, v.DB, name, logID); err != nil {
				return false, err
			}
			continue
		}
		leased, _, err := dropShadow(ctx, v.DB, name, logID, "", 0)
		if err != nil {
			return false, err
		}
		held = held || leased
	}
	return held, nil
}

// waitOlderTxs waits until every transaction of this database that began before the call has ended:
// vacuum keeps a deleted row while one may see it.
func waitOlderTxs(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, vacuumTimeout)
	defer cancel()
	var horizon string
	if err := conn.QueryRow(ctx, `select pg_snapshot_xmax(pg_current_snapshot())::text`).Scan(&horizon); err != nil {
		return err
	}
	for {
		// age(xid) is how many transactions ago an id was assigned.
		var holders int
		var since *time.Time
		err := conn.QueryRow(ctx, `select count(*), min(xact_start) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
				and greatest(coalesce(age(backend_xmin), 0), coalesce(age(backend_xid), 0))
					> age(($1::text::numeric % 4294967296)::text::xid)`, horizon).
			Scan(&holders, &since)
		if err != nil {
			return err
		}
		if holders == 0 {
			return nil
		}
		if ended := backoff.Pause(ctx, vacuumPoll, nil); ended != nil {
			return fmt.Errorf("%d transactions, the oldest since %s, still see what was deleted: %w", holders, since, ended)
		}
	}
}
