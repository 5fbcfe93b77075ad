// Package pgarray turns rows into the arrays of "insert … select from unnest($1, $2, …)", the one
// statement that a projection writes a table with.
package pgarray

import (
	"time"

	"github.com/google/uuid"
)

// Column is one column of the rows.
func Column[R, V any](rows []R, get func(R) V) []V {
	column := make([]V, len(rows))
	for i, row := range rows {
		column[i] = get(row)
	}
	return column
}

// IDs is a column of uuids.
func IDs[R any](rows []R, get func(R) uuid.UUID) []uuid.UUID { return Column(rows, get) }

// Keys is the elements of a set of uuids as an array.
func Keys[V any](set map[uuid.UUID]V) []uuid.UUID {
	keys := make([]uuid.UUID, 0, len(set))
	for id := range set {
		keys = append(keys, id)
	}
	return keys
}

// Optional is nil for the zero value, which becomes null.
func Optional[V comparable](v V) *V {
	var zero V
	if v == zero {
		return nil
	}
	return &v
}

// Instant is a time as Postgres keeps it: in UTC, cut to microseconds. Rows that are folded in
// memory are equal to rows that were read back only where every time went through it.
func Instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
