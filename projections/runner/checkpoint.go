package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/ownership"
	"github.com/annals-project/annals/internal/pg/schemas"
	"github.com/annals-project/annals/projections"
)

// checkpointTable is the one-row table in the schema of every projection. The lease (epoch, holder,
// until) and the position of the rows (position, log_id, last_event_id) are in one row, so one
// condition guards both. The clock is the database's, the same for all processes.
const checkpointTable = `create table checkpoint (
	name          text primary key,
	version       int not null,
	epoch         bigint not null,      -- raised with every lease
	holder        text not null,        -- of the lease
	until         timestamptz not null, -- when another process may take over
	server        timestamptz not null, -- start time of the database server, after whose restart a lease is over
	position      bigint not null,      -- everything up to here is applied
	log_id        uuid not null,        -- of the log that the rows are built from
	last_event_id uuid,                 -- of the event at position
	target        text not null,        -- what the projection writes to outside Postgres; empty for nothing
	stopped       jsonb                 -- the Stop that ended the last lease, or the Repeat of the current one
);
alter table checkpoint alter stopped set statistics 0`

// checkpoints is the access to the checkpoint of one projection.
type checkpoints struct {
	db     *pgxpool.Pool
	name   string // of the schema
	schema string // the same quoted
}

func newCheckpoints(db *pgxpool.Pool, name string) checkpoints {
	return checkpoints{db: db, name: name, schema: pgx.Identifier{name}.Sanitize()}
}

// inDatabase returns the name of the schema with the prefix of the service. Statements name it without.
func (c checkpoints) inDatabase() string { return pg.SchemaPrefixOf(c.db).Name(c.name) }

// shadowSuffix and oldSuffix end the names of shadows, and of schemas that were live before.
const (
	shadowSuffix = schemas.ShadowSuffix
	oldSuffix    = schemas.OldSuffix
)

// checkpoint is a row as it was read.
type checkpoint struct {
	version  int
	epoch    int64
	position eventstore.Position
	logID    uuid.UUID
	last     *uuid.UUID
	target   string
	stopped  *Stop
	repeat   *Repeat
	// holder has the lease; "" if no process has it.
	holder string
}

// heldError means that another process has the lease.
type heldError struct {
	holder string
	left   time.Duration
	// target is that of its checkpoint.
	target string
}

func (e *heldError) Error() string { return "lease of " + e.holder }

// beginLease begins a transaction that takes a lease. A process that is frozen in it delays the
// others no longer than the timeout.
var beginLease = pgx.TxOptions{
	BeginQuery: "begin; set local idle_in_transaction_session_timeout = '15s'; set local lock_timeout = '5s'",
}

// lock lets one process at a time read or change the lease. The lock ends with the transaction.
func (c checkpoints) lock(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('annals projection ' || $1, 0))`, c.inDatabase())
	return err
}

// endWriters ends the sessions that write to the schema, whose lease is over. A process that was
// frozen in the middle of a page keeps the locks of that page, which can no longer be committed.
func (c checkpoints) endWriters(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `select pg_terminate_backend(pid) from (
		select distinct l.pid from pg_locks l join pg_class c on c.oid = l.relation
		where c.relnamespace = to_regnamespace('`+c.schema+`') and l.granted and l.mode in ('RowShareLock', 'RowExclusiveLock')
			and l.database = (select oid from pg_database where datname = current_database())
			and l.pid <> pg_backend_pid()
	) writers`)
	if err != nil {
		return fmt.Errorf("end the page of the last lease: %w", err)
	}
	return nil
}

// claim is find for a process that takes the lease. It waits for no lock of a lease in force, and
// ends the sessions of a holder whose lease is over.
func (c checkpoints) claim(
	ctx context.Context, tx pgx.Tx, holder string, logID uuid.UUID,
) (row checkpoint, ok bool, err error) {
	row, ok, err = c.readLocked(ctx, tx, holder, logID, "")
	if !ok || err != nil {
		return row, ok, err
	}
	if row.holder != "" && row.holder != holder {
		if err := c.endWriters(ctx, tx); err != nil {
			return row, false, err
		}
	}
	return c.find(ctx, tx, holder, logID)
}

// find locks and reads the row; ok is false if the schema does not exist. It returns a *heldError,
// with the row, if another process has the lease, and an *ownership.ForeignError for a schema that is
// not proved to be of the log.
func (c checkpoints) find(
	ctx context.Context, tx pgx.Tx, holder string, logID uuid.UUID,
) (row checkpoint, ok bool, err error) {
	return c.readLocked(ctx, tx, holder, logID, " for update")
}

// readLocked is find with a lock clause. row.holder is the last holder.
func (c checkpoints) readLocked(
	ctx context.Context, tx pgx.Tx, holder string, logID uuid.UUID, lock string,
) (row checkpoint, ok bool, err error) {
	if err := c.lock(ctx, tx); err != nil { // also while a schema is created
		return row, false, err
	}
	if exists, err := isOurs(ctx, tx, c.inDatabase(), logID); err != nil || !exists {
		return row, false, err
	}
	err = tx.QueryRow(ctx, `select to_regclass('`+c.schema+`.checkpoint') is not null`).Scan(&ok)
	if err != nil || !ok {
		return row, false, err
	}
	var (
		position int64
		other    string
		left     float64
	)
	err = tx.QueryRow(ctx, `select version, epoch, position, log_id, last_event_id, target, holder,
			case when server = pg_postmaster_start_time() then extract(epoch from until - clock_timestamp())::float8 else 0 end
		from `+c.schema+`.checkpoint`+lock).
		Scan(&row.version, &row.epoch, &position, &row.logID, &row.last, &row.target, &other, &left)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, false, nil
	}
	if err != nil {
		return row, false, err
	}
	if row.logID != logID {
		return row, false, &ownership.ForeignError{Schema: c.inDatabase(), Of: row.logID, LogID: logID}
	}
	row.position, row.holder = eventstore.Position(position), other
	if left > 0 && other != holder {
		remaining := time.Duration(left * float64(time.Second))
		return row, true, &heldError{holder: other, left: remaining, target: row.target}
	}
	return row, true, nil
}

// create drops and creates the schema, marked as one of the log, with a checkpoint before the first
// event.
func (c checkpoints) create(ctx context.Context, tx pgx.Tx, p projections.Projector, epoch int64, logID uuid.UUID,
) (checkpoint, error) {
	row := checkpoint{version: p.Version(), epoch: epoch, logID: logID, target: projections.TargetOf(p)}
	if err := dropOurs(ctx, tx, c.inDatabase(), logID); err != nil {
		return row, fmt.Errorf("create schema %s: %w", c.inDatabase(), err)
	}
	for _, ddl := range []string{
		"create schema " + c.schema, ownership.MarkStatement(c.name, logID),
		"set local search_path = " + c.schema, p.Schema(), checkpointTable,
	} {
		if _, err := tx.Exec(ctx, ddl); err != nil {
			return row, fmt.Errorf("create schema %s: %w", c.inDatabase(), err)
		}
	}
	_, err := tx.Exec(ctx, `insert into checkpoint (name, version, epoch, holder, until, server, position, log_id, target)
		values ($1, $2, $3, '', clock_timestamp(), pg_postmaster_start_time(), 0, $4, $5)`,
		p.Name(), row.version, row.epoch, logID, row.target)
	if err != nil {
		return row, fmt.Errorf("create schema %s: %w", c.inDatabase(), err)
	}
	return row, nil
}

// takeLease begins a lease. A lease from before a restart of the server is over, so a process that
// starts with the private Postgres need not wait for its own.
func (c checkpoints) takeLease(ctx context.Context, tx pgx.Tx, holder string, lease time.Duration,
) (epoch int64, err error) {
	err = tx.QueryRow(ctx, `update `+c.schema+`.checkpoint set epoch = epoch + 1, holder = $1,
		until = clock_timestamp() + make_interval(secs => $2), server = pg_postmaster_start_time(), stopped = null
		returning epoch`,
		holder, lease.Seconds()).Scan(&epoch)
	return epoch, err
}

// move moves the checkpoint and renews the lease. It returns errStale if another process has the
// lease, or the checkpoint is not at after.
func (c checkpoints) move(ctx context.Context, tx pgx.Tx, epoch int64, lease time.Duration,
	after, next eventstore.Position, last uuid.UUID,
) error {
	tag, err := tx.Exec(ctx, `update `+c.schema+`.checkpoint set position = $1, last_event_id = $2, stopped = null,
			until = clock_timestamp() + make_interval(secs => $3)
		where epoch = $4 and position = $5`, int64(next), last, lease.Seconds(), epoch, int64(after))
	return staleUnlessOne(tag, err)
}

// moveAlone is move in a separate transaction, in one round trip. Like a page it does not wait for
// the disk: a crash of the server loses the last rows and checkpoints together.
func (c checkpoints) moveAlone(ctx context.Context, epoch int64, lease time.Duration,
	after, next eventstore.Position, last uuid.UUID,
) error {
	tag, err := c.db.Exec(ctx, `with no_wait as (select set_config('synchronous_commit', 'off', true))
		update `+c.schema+`.checkpoint set position = $1, last_event_id = $2, stopped = null,
			until = clock_timestamp() + make_interval(secs => $3)
		from no_wait where epoch = $4 and position = $5`, int64(next), last, lease.Seconds(), epoch, int64(after))
	return staleUnlessOne(tag, err)
}

func staleUnlessOne(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() == 0 {
		return errStale
	}
	return err
}

// renew extends a lease and returns the position of the checkpoint, or errStale if the lease is
// over.
func (c checkpoints) renew(ctx context.Context, epoch int64, lease time.Duration) (eventstore.Position, error) {
	var position int64
	err := c.db.QueryRow(ctx, `update `+c.schema+`.checkpoint set until = clock_timestamp() + make_interval(secs => $1)
		where epoch = $2 returning position`,
		lease.Seconds(), epoch).Scan(&position)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, errStale
	}
	return eventstore.Position(position), err
}

// endLease is what ends a lease in its row. It raises the epoch: a renewal that its caller has given up may still be on
// its way to the server, and would keep the projection for a process that has ended.
const endLease = "until = clock_timestamp(), epoch = epoch + 1"

// release ends a lease at once, and stores why the projection does not move, if so.
func (c checkpoints) release(ctx context.Context, epoch int64, stop *Stop, repeat *Repeat) error {
	reason, err := encodeReason(stop, repeat)
	if err != nil {
		return err
	}
	_, err = c.db.Exec(ctx, `update `+c.schema+`.checkpoint
		set `+endLease+`, stopped = $1 where epoch = $2`, reason, epoch)
	return err
}

// releaseOf ends the lease that a process has, if any. It first waits for a transaction that is taking a lease: the
// process may have given that up before the server commits it.
func (c checkpoints) releaseOf(ctx context.Context, holder string) error {
	return pgx.BeginFunc(ctx, c.db, func(tx pgx.Tx) error {
		if err := c.lock(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `update `+c.schema+`.checkpoint set `+endLease+`
			where holder = $1 and until > clock_timestamp()`, holder)
		return err
	})
}

// storeRepeat stores that the lease repeats a page, for other processes. The next move clears it.
func (c checkpoints) storeRepeat(ctx context.Context, epoch int64, repeat *Repeat) error {
	reason, err := encodeReason(nil, repeat)
	if err != nil {
		return err
	}
	tag, err := c.db.Exec(ctx, `update `+c.schema+`.checkpoint set stopped = $1 where epoch = $2`, reason, epoch)
	return staleUnlessOne(tag, err)
}

// read reads the row. A projection without a schema is at position 0, epoch 0.
func (c checkpoints) read(ctx context.Context) (row checkpoint, err error) {
	var (
		position int64
		stopped  []byte
	)
	err = c.db.QueryRow(ctx, `select version, epoch, position, log_id, last_event_id, target, stopped,
			case when until > clock_timestamp() and server = pg_postmaster_start_time() then holder else '' end
		from `+c.schema+`.checkpoint`).
		Scan(&row.version, &row.epoch, &position, &row.logID, &row.last, &row.target, &stopped, &row.holder)
	missing, is := errors.AsType[*pgconn.PgError](err)
	if is && (missing.Code == undefinedTable || missing.Code == undefinedSchema) {
		return checkpoint{}, nil
	}
	if err != nil {
		return checkpoint{}, fmt.Errorf("read checkpoint of %s: %w", c.name, err)
	}
	row.position = eventstore.Position(position)
	if stopped != nil {
		if row.stopped, row.repeat, err = decodeReason(c.name, stopped); err != nil {
			return checkpoint{}, err
		}
	}
	return row, nil
}

const (
	undefinedTable  = "42P01"
	undefinedSchema = "3F000"
)
