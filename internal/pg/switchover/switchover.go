// Package switchover notices the switch-over of a rebuild within a read of several statements.
//
// A switch-over renames the schemas of a projection. Postgres looks up names as of now, also in a
// transaction that reads one snapshot: an earlier statement may have read the tables of before, and a
// later one those of after, as they were at the snapshot, when they were still being built. So a read
// compares which tables the names mean first and last, and begins again if that has changed.
package switchover

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg/schemas"
)

// Err reports a read that may have mixed the tables before a switch-over with those after it.
var Err = errors.New("a projection was switched over during the read")

// Tries is how often a read is made that a switch-over interrupts.
const Tries = 3

// selectTables identifies the tables of projections, 0 for one without.
const selectTables = `select array(select coalesce(to_regclass(quote_ident(` + schemas.Call + ` || name) || '.checkpoint')::oid::bigint, 0)
	from unnest($1::text[]) with ordinality p (name, n) order by n)`

// Watch watches the projections of one read. It is not safe for concurrent use.
type Watch struct {
	projections []string
	first, last []int64
}

// New makes a watch on projections.
func New(projections ...string) *Watch { return &Watch{projections: projections} }

// Begin queues the look at the tables before the statements of the read.
func (w *Watch) Begin(b *pgx.Batch) {
	w.last = nil
	b.Queue(selectTables, w.projections).QueryRow(func(row pgx.Row) error { return row.Scan(&w.first) })
}

// End queues the look at the tables after the statements of the read. Check then has the result.
func (w *Watch) End(b *pgx.Batch) {
	b.Queue(selectTables, w.projections).QueryRow(func(row pgx.Row) error { return row.Scan(&w.last) })
}

// Check returns Err if the tables at End are others than at Begin, or if one of the two was not made.
func (w *Watch) Check() error {
	if w.first == nil || !slices.Equal(w.first, w.last) {
		return Err
	}
	return nil
}

// Snapshot calls read in a read-only transaction in which all statements read one snapshot, of the same
// tables of the projections. It may call read several times, and returns Err if a switch-over comes
// each time.
func Snapshot(
	ctx context.Context, db *pgxpool.Pool, projections []string, read func(ctx context.Context, tx pgx.Tx) error,
) (err error) {
	for range Tries {
		w := New(projections...)
		err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
			func(tx pgx.Tx) error { return w.within(ctx, db, tx, read) })
		if !errors.Is(err, Err) {
			return err
		}
	}
	return err
}

func (w *Watch) within(
	ctx context.Context, db *pgxpool.Pool, tx pgx.Tx, read func(ctx context.Context, tx pgx.Tx) error,
) error {
	if err := look(ctx, tx, w.Begin); err != nil {
		return err
	}
	if err := read(ctx, tx); err != nil {
		// A switch-over may be the cause. The transaction may be over, so look outside it.
		if look(ctx, db, w.End) == nil && w.Check() != nil {
			return Err
		}
		return err
	}
	if err := look(ctx, tx, w.End); err != nil {
		return err
	}
	return w.Check()
}

type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// look sends what queue queues.
func look(ctx context.Context, db sender, queue func(*pgx.Batch)) error {
	b := new(pgx.Batch)
	queue(b)
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("look at the tables of projections: %w", err)
	}
	return nil
}
