// Package pgarray converts rows to the arrays of "insert … select from unnest($1, $2, …)", the one
// statement by which a projection writes a table.
package pgarray

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Column returns one column of the rows.
func Column[R, V any](rows []R, get func(R) V) []V {
	column := make([]V, len(rows))
	for i, row := range rows {
		column[i] = get(row)
	}
	return column
}

// IDs returns a column of uuids.
func IDs[R any](rows []R, get func(R) uuid.UUID) []uuid.UUID { return Column(rows, get) }

// Keys returns the elements of a set of uuids as an array.
func Keys[V any](set map[uuid.UUID]V) []uuid.UUID {
	keys := make([]uuid.UUID, 0, len(set))
	for id := range set {
		keys = append(keys, id)
	}
	return keys
}

// Optional returns nil for the zero value, which becomes null.
func Optional[V comparable](v V) *V {
	var zero V
	if v == zero {
		return nil
	}
	return &v
}

// Instant returns a time as Postgres stores it: in UTC, cut to microseconds. Every stored time
// must pass through it, so that rows folded in memory equal rows that were read back.
func Instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// Queue adds a query to the batch whose only parameter is the set of uuids as an array. read
// receives its rows. An empty set adds no query.
func Queue[V any](b *pgx.Batch, sql string, of map[uuid.UUID]V, read func(pgx.Rows) error) {
	if len(of) > 0 {
		b.Queue(sql, Keys(of)).Query(read)
	}
}

// Flush sends the queued statements in one round trip, if there are any. It returns the first
// error of a statement or of a reader of rows.
func Flush(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, b).Close()
}
