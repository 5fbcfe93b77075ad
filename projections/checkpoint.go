package projections

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
)

// checkpointTable is the one-row table that every projection's schema has beside its own tables.
//
// Who holds the turn (epoch, holder, until) and how far the rows have come (position, log_id, last_event_id) stand in one row,
// so that one condition guards both. The clock here is the database's, the same for all processes.
const checkpointTable = `create table checkpoint (
	name          text primary key,
	version       int not null,
	epoch         bigint not null,      -- raised with every turn
	holder        text not null,        -- whose turn it is
	until         timestamptz not null, -- when another process may take over
	server        timestamptz not null, -- when the server was started that the turn was taken at; it does not outlive that
	position      bigint not null,      -- everything up to here is applied
	log_id        uuid not null,        -- of the log that the rows are built from
	last_event_id uuid,                 -- of the event at position
	target        text not null,        -- what the projection writes to outside Postgres; empty for nothing
	stopped       jsonb                 -- the Stop that the last turn ended with, or the Repeat of the present one
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

// besideSuffix and oldSuffix name the schema that a projection is built in beside the live one, and those that were live before.
const (
	besideSuffix = "_next"
	oldSuffix    = "_old_"
)

// checkpoint is a row as a turn finds it.
type checkpoint struct {
	version  int
	epoch    int64
	position eventstore.Position
	logID    uuid.UUID
	last     *uuid.UUID
	target   string
	stopped  *Stop
	repeat   *Repeat
	// holder has the turn; nobody where it is empty.
	holder string
}

// heldError is the turn of another process.
type heldError struct {
	holder string
	left   time.Duration
	// logID and target are those of its checkpoint.
	logID  uuid.UUID
	target string
}

func (e *heldError) Error() string { return "turn of " + e.holder }

// find locks and reads the row; ok is false where the schema is not made yet.
func (c checkpoints) find(ctx context.Context, tx pgx.Tx, holder string) (row checkpoint, ok bool, err error) {
	// One process at a time makes a schema. The lock ends with the transaction.
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('annals projection ' || $1, 0))`, c.name); err != nil {
		return row, false, err
	}
	if err := tx.QueryRow(ctx, `select to_regclass($1) is not null`, c.schema+".checkpoint").Scan(&ok); err != nil || !ok {
		return row, false, err
	}
	var (
		position int64
		other    string
		left     float64
	)
	err = tx.QueryRow(ctx, `select version, epoch, position, log_id, last_event_id, target, holder,
			case when server = pg_postmaster_start_time() then extract(epoch from until - clock_timestamp())::float8 else 0 end
		from `+c.schema+`.checkpoint for update`).Scan(&row.version, &row.epoch, &position, &row.logID, &row.last, &row.target, &other, &left)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, false, nil
	}
	if err != nil {
		return row, false, err
	}
	row.position = eventstore.Position(position)
	if left > 0 && other != holder {
		return row, true, &heldError{holder: other, left: time.Duration(left * float64(time.Second)), logID: row.logID, target: row.target}
	}
	return row, true, nil
}

// make makes the schema anew, empty, and its checkpoint before the first event.
func (c checkpoints) make(ctx context.Context, tx pgx.Tx, p Projector, epoch int64, logID uuid.UUID) (checkpoint, error) {
	row := checkpoint{version: p.Version(), epoch: epoch, logID: logID, target: targetOf(p)}
	for _, ddl := range []string{"drop schema if exists " + c.schema + " cascade", "create schema " + c.schema, "set local search_path = " + c.schema, p.Schema(), checkpointTable} {
		if _, err := tx.Exec(ctx, ddl); err != nil {
			return row, fmt.Errorf("make schema %s: %w", c.name, err)
		}
	}
	_, err := tx.Exec(ctx, `insert into checkpoint (name, version, epoch, holder, until, server, position, log_id, target)
		values ($1, $2, $3, '', clock_timestamp(), pg_postmaster_start_time(), 0, $4, $5)`, p.Name(), row.version, row.epoch, logID, row.target)
	if err != nil {
		return row, fmt.Errorf("make schema %s: %w", c.name, err)
	}
	return row, nil
}

// raise begins a turn. Where the server is started anew the embedded one's process was too, and need not wait for its own lease.
func (c checkpoints) raise(ctx context.Context, tx pgx.Tx, holder string, lease time.Duration) (epoch int64, err error) {
	err = tx.QueryRow(ctx, `update `+c.schema+`.checkpoint set epoch = epoch + 1, holder = $1, until = clock_timestamp() + make_interval(secs => $2),
		server = pg_postmaster_start_time(), stopped = null returning epoch`,
		holder, lease.Seconds()).Scan(&epoch)
	return epoch, err
}

// move moves the checkpoint of a turn and prolongs the turn; errStale where it is no longer the turn's, or not at after.
func (c checkpoints) move(ctx context.Context, tx pgx.Tx, epoch int64, lease time.Duration, after, next eventstore.Position, last uuid.UUID) error {
	tag, err := tx.Exec(ctx, `update `+c.schema+`.checkpoint set position = $1, last_event_id = $2, stopped = null, until = clock_timestamp() + make_interval(secs => $3)
		where epoch = $4 and position = $5`, int64(next), last, lease.Seconds(), epoch, int64(after))
	return staleUnlessOne(tag, err)
}

// moveAlone is move as a transaction of its own in one round trip. Like that of every page it does not wait for the disk: after
// a crash of the server the rows and the checkpoint fall back together.
func (c checkpoints) moveAlone(ctx context.Context, epoch int64, lease time.Duration, after, next eventstore.Position, last uuid.UUID) error {
	tag, err := c.db.Exec(ctx, `with no_wait as (select set_config('synchronous_commit', 'off', true))
		update `+c.schema+`.checkpoint set position = $1, last_event_id = $2, stopped = null, until = clock_timestamp() + make_interval(secs => $3)
		from no_wait where epoch = $4 and position = $5`, int64(next), last, lease.Seconds(), epoch, int64(after))
	return staleUnlessOne(tag, err)
}

func staleUnlessOne(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() == 0 {
		return errStale
	}
	return err
}

// renew prolongs a turn and answers where the checkpoint is; errStale where the turn is over.
func (c checkpoints) renew(ctx context.Context, epoch int64, lease time.Duration) (eventstore.Position, error) {
	var position int64
	err := c.db.QueryRow(ctx, `update `+c.schema+`.checkpoint set until = clock_timestamp() + make_interval(secs => $1) where epoch = $2 returning position`,
		lease.Seconds(), epoch).Scan(&position)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, errStale
	}
	return eventstore.Position(position), err
}

// release ends a turn at once, with the reason where nobody can go on, or did not so far.
func (c checkpoints) release(ctx context.Context, epoch int64, stop *Stop, repeat *Repeat) error {
	reason, err := encodeReason(stop, repeat)
	if err != nil {
		return err
	}
	_, err = c.db.Exec(ctx, `update `+c.schema+`.checkpoint set until = clock_timestamp(), stopped = $1 where epoch = $2`, reason, epoch)
	return err
}

// repeats stores for other processes that a turn repeats a page; the move of the checkpoint takes it back.
func (c checkpoints) repeats(ctx context.Context, epoch int64, repeat *Repeat) error {
	reason, err := encodeReason(nil, repeat)
	if err != nil {
		return err
	}
	tag, err := c.db.Exec(ctx, `update `+c.schema+`.checkpoint set stopped = $1 where epoch = $2`, reason, epoch)
	return staleUnlessOne(tag, err)
}

// read reads the row as it is. A projection that was not made yet is at position 0, epoch 0.
func (c checkpoints) read(ctx context.Context) (row checkpoint, err error) {
	var (
		position int64
		stopped  []byte
	)
	err = c.db.QueryRow(ctx, `select version, epoch, position, log_id, last_event_id, target, stopped, case when until > clock_timestamp() and server = pg_postmaster_start_time() then holder else '' end from `+c.schema+`.checkpoint`).
		Scan(&row.version, &row.epoch, &position, &row.logID, &row.last, &row.target, &stopped, &row.holder)
	if missing, ok := errors.AsType[*pgconn.PgError](err); ok && (missing.Code == undefinedTable || missing.Code == undefinedSchema) {
		return checkpoint{}, nil
	}
	if err != nil {
		return checkpoint{}, fmt.Errorf("checkpoint of %s: %w", c.name, err)
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
