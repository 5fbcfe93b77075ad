// Package replica reads at streaming replicas of the database, if that gives the same answer as a
// read at the primary.
//
// A replica lags the primary, so a read states what it must include: the position up to which
// projections have applied the log. One snapshot of the replica shows the checkpoints and the
// rows. If the checkpoints lag, or the replica is unreachable, busy, slow or in error, the caller
// reads at the primary, within the deadline of the same call. A replica that fails gets no reads
// until a probe succeeds.
package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/pg/switchover"
)

const (
	// readLimit bounds a read with its connection. A slower read continues at the primary.
	readLimit = 2 * time.Second
	// lagWait is how long a read waits for a replica that lags. A replica that follows closely
	// catches up within it, also while the log grows. After a wait in vain, reads do not wait for
	// noWait.
	lagWait   = 100 * time.Millisecond
	firstLook = 5 * time.Millisecond
	noWait    = time.Second
	// endLimit bounds the end of a snapshot.
	endLimit = time.Second
)

// ErrDeclined is returned by a read that the primary must answer, although the replica works.
var ErrDeclined = errors.New("the read belongs to the primary")

// Snapshot reads rows: a snapshot of the replica, a transaction, or a pool.
type Snapshot interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// Need is what a read must include.
type Need struct {
	// Kind names the read in the metrics.
	Kind string
	// Position is what every projection of Projections must have applied. At 0 the snapshot may be
	// old: then only rows that never change may be read, and a missing row may exist. In both cases
	// the projections must have the version that this program was written for.
	Position    eventstore.Position
	Projections []string
}

// Config describes a Reader. All fields are required unless they say otherwise.
type Config struct {
	// URL is the address of one or more replicas.
	URL string
	// Primary is the database that they follow.
	Primary *pgxpool.Pool
	// Versions are those of the projections that the queries of this program were written for.
	Versions map[string]int
	// Request makes the projections of this process apply a position without a pause, since a caller
	// waits for it. It may be nil.
	Request func(position eventstore.Position, projections ...string)
	Logger  *slog.Logger
}

// Reader reads at the replicas. A nil Reader leaves every read to the primary. It is safe for
// concurrent use.
type Reader struct {
	pool    *pgxpool.Pool
	cfg     Config
	primary identity
	// up is true while reads may go to the replica; failed wakes the watch once it is not.
	up     atomic.Bool
	failed chan struct{}
	// lag is how long ago the replica's newest transaction was committed, in nanoseconds.
	lag atomic.Int64
	// noWaitUntil is the end of the time in which reads do not wait for the replica, in Unix
	// nanoseconds.
	noWaitUntil atomic.Int64
	reads       *prometheus.CounterVec

	mu sync.Mutex
	// selects are the statements that read checkpoints, by the names of the projections.
	selects map[string]string
	// lastErr is the reason why the replica is not up. It is logged once.
	lastErr error
}

// The results of a read, as the metrics name them.
const (
	served   = "served"   // the replica answered
	late     = "late"     // it has not applied the position, or not the schema
	away     = "away"     // it failed, and gets no reads for now
	busy     = "busy"     // all connections to it were in use
	conflict = "conflict" // its recovery cancelled the read
	declined = "declined" // the read requires the primary
	broken   = "failed"
)

// Read calls read with a snapshot of the replica that includes what need states. If ok is false,
// the caller must read at the primary, whatever read did before. err is a fault that read
// returned, or the end of ctx. Other errors of read count as failures of the replica.
func (r *Reader) Read(
	ctx context.Context, need Need, read func(ctx context.Context, db Snapshot) error,
) (ok bool, err error) {
	if r == nil {
		return false, nil
	}
	result := away
	if r.up.Load() {
		result, err = r.try(ctx, need, read)
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	r.reads.WithLabelValues(need.Kind, result).Inc()
	if result == served {
		return true, err
	}
	if result == broken {
		r.fail(ctx, err)
	}
	return false, nil
}

// Up reports whether reads may go to the replica now. It is false for a nil Reader.
func (r *Reader) Up() bool { return r != nil && r.up.Load() }

// headLimit bounds how long a read at the replica waits for the head of the log. The primary may answer without it.
const headLimit = time.Second

// ReadAtHead is Read as of the head of the log at the call, which head returns.
func (r *Reader) ReadAtHead(
	ctx context.Context, need Need, head func(context.Context) (eventstore.Position, error),
	read func(ctx context.Context, db Snapshot) error,
) (ok bool, err error) {
	if !r.Up() {
		return false, nil
	}
	limited, cancel := context.WithTimeout(ctx, headLimit)
	defer cancel()
	if need.Position, err = head(limited); err != nil {
		return false, context.Cause(ctx)
	}
	return r.Read(ctx, need, read)
}

// try reads once. err is a fault of read with the result served, and the cause with the result
// broken.
func (r *Reader) try(
	ctx context.Context, need Need, read func(ctx context.Context, db Snapshot) error,
) (result string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	if s := r.pool.Stat(); s.AcquiredConns() >= s.MaxConns() {
		return busy, nil
	}
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return broken, err
	}
	defer func() {
		end(ctx, conn)
		conn.Release()
	}()
	watch := switchover.New(need.Projections...)
	if passed, err := r.await(ctx, conn, need, watch); err != nil || !passed {
		return resultOf(err), err
	}
	err = read(ctx, conn)
	if _, isFault := errors.AsType[*fault.Error](err); err != nil && !isFault {
		return resultOf(err), err
	}
	if switched := endWatched(ctx, conn, watch); switched != nil {
		return resultOf(switched), switched
	}
	return served, err
}

// endWatched ends a snapshot in whose tables nothing was switched over.
func endWatched(ctx context.Context, conn *pgxpool.Conn, watch *switchover.Watch) error {
	b := new(pgx.Batch)
	watch.End(b)
	b.Queue("rollback")
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	return watch.Check()
}

// resultOf returns the result of a read that failed with an error; nil means that the replica lags.
func resultOf(err error) string {
	if err == nil {
		return late
	}
	if errors.Is(err, ErrDeclined) {
		return declined
	}
	if errors.Is(err, switchover.Err) {
		return conflict
	}
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return broken
	}
	switch refused.Code {
	case "40001", "40P01", // a conflict with recovery
		"0A000", "26000": // a cached statement of a schema that a rebuild replaced
		return conflict
	case "3F000", "42P01", "42703": // a schema that it does not have yet
		return late
	}
	return broken
}

// await begins a snapshot in which the projections have applied the position. It returns false,
// without a snapshot, if the replica lags.
func (r *Reader) await(
	ctx context.Context, conn *pgxpool.Conn, need Need, watch *switchover.Watch,
) (bool, error) {
	began, pause := time.Now(), firstLook
	for first := true; ; first = false {
		at, err := r.begin(ctx, conn, need, watch)
		if err != nil {
			return false, err
		}
		if at >= int64(need.Position) {
			return true, nil
		}
		end(ctx, conn)
		if conn.Conn().IsClosed() || at < 0 || began.UnixNano() < r.noWaitUntil.Load() {
			return false, nil
		}
		if first && r.cfg.Request != nil {
			r.cfg.Request(need.Position, need.Projections...)
		}
		if time.Since(began)+pause > lagWait {
			r.noWaitUntil.Store(time.Now().Add(noWait).UnixNano())
			return false, nil
		}
		if err := backoff.Pause(ctx, pause, nil); err != nil {
			return false, err
		}
		pause *= 2
	}
}

// begin begins a snapshot and reads the position that every projection has applied in it, -1 if one
// has another version.
func (r *Reader) begin(
	ctx context.Context, conn *pgxpool.Conn, need Need, watch *switchover.Watch,
) (at int64, err error) {
	var recovering bool
	batch := new(pgx.Batch)
	batch.Queue("begin isolation level repeatable read read only")
	watch.Begin(batch)
	batch.Queue(r.selectFor(need.Projections)).QueryRow(func(row pgx.Row) error { return row.Scan(&recovering, &at) })
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return 0, err
	}
	if !recovering { // it was promoted while connected, and is no longer a standby
		return 0, pgconn.ErrPrimaryConnection
	}
	return at, nil
}

// selectFor returns the statement that reads the checkpoints of projections: whether the server is
// a standby, and the lowest position.
func (r *Reader) selectFor(projections []string) string {
	key := strings.Join(projections, ",")
	r.mu.Lock()
	defer r.mu.Unlock()
	if sql, ok := r.selects[key]; ok {
		return sql
	}
	columns := make([]string, len(projections))
	for i, name := range projections {
		columns[i] = fmt.Sprintf("coalesce((select position from %s.checkpoint where version = %d), -1)",
			pgx.Identifier{name}.Sanitize(), r.cfg.Versions[name])
	}
	sql := "select pg_is_in_recovery(), least(" + strings.Join(columns, ", ") + ")"
	if len(columns) == 0 {
		sql = "select pg_is_in_recovery(), 0::bigint"
	}
	r.selects[key] = sql
	return sql
}

// end ends a snapshot, if there is one. If that fails, the connection is closed.
func end(ctx context.Context, conn *pgxpool.Conn) {
	if conn.Conn().IsClosed() || conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	if _, err := conn.Exec(ctx, "rollback"); err != nil {
		_ = conn.Conn().Close(ctx) // the pool drops it, and nothing was written
	}
}

// fail stops reads at the replica until a probe succeeds.
func (r *Reader) fail(ctx context.Context, err error) {
	if !r.up.CompareAndSwap(true, false) {
		return // another read reported it
	}
	r.pool.Reset() // the next connections are new, perhaps to another host
	r.report(ctx, err)
	select {
	case r.failed <- struct{}{}:
	default: // the watch was woken already
	}
}

// report logs why the replica is not up, unless the last report had the same reason.
func (r *Reader) report(ctx context.Context, err error) {
	r.mu.Lock()
	same := r.lastErr != nil && r.lastErr.Error() == err.Error()
	r.lastErr = err
	r.mu.Unlock()
	if !same {
		r.cfg.Logger.WarnContext(ctx, "postgres replica is away, reads stay on the primary, will retry", "err", err)
	}
}
