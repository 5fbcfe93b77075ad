// Package statement runs one statement of SQL at a time. Its errors begin with the statement, which holds no values.
package statement

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier is a pool, or a transaction.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Failed names the statement that failed. It returns nil for no error.
func Failed(sql string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%.60s: %w", sql, err)
}

// Exec runs a statement and returns how many rows it changed.
func Exec(ctx context.Context, on Querier, sql string, args ...any) (int64, error) {
	done, err := on.Exec(ctx, sql, args...)
	return done.RowsAffected(), Failed(sql, err)
}

// All returns the rows of a statement.
func All[T any](ctx context.Context, on Querier, as pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, _ := on.Query(ctx, sql, args...) // CollectRows returns the error
	list, err := pgx.CollectRows(rows, as)
	return list, Failed(sql, err)
}

// One returns the first row of a statement, if there is one.
func One[T any](
	ctx context.Context, on Querier, as pgx.RowToFunc[T], sql string, args ...any,
) (row T, found bool, err error) {
	list, err := All(ctx, on, as, sql, args...)
	if err != nil || len(list) == 0 {
		return row, false, err
	}
	return list[0], true, nil
}

// EachPage calls do with the ids that a statement selects in their order, a page at a time. The parameters of the
// statement are the last id of the page before and the size of a page.
func EachPage(ctx context.Context, on Querier, size int, sql string, do func(ids []uuid.UUID) error) error {
	for after := uuid.Nil; ; {
		ids, err := All(ctx, on, pgx.RowTo[uuid.UUID], sql, after, size)
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := do(ids); err != nil {
			return err
		}
		after = ids[len(ids)-1]
	}
}
