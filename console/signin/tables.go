package signin

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/internal/secret"
)

// querier is the pool, or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// failed names the statement that failed, which holds no values.
func failed(sql string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%.60s: %w", sql, err)
}

// exec runs a statement and returns how many rows it changed.
func exec(ctx context.Context, on querier, sql string, args ...any) (int64, error) {
	done, err := on.Exec(ctx, sql, args...)
	return done.RowsAffected(), failed(sql, err)
}

// all returns the rows of a statement.
func all[T any](ctx context.Context, on querier, as pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, _ := on.Query(ctx, sql, args...) // CollectRows returns the error
	list, err := pgx.CollectRows(rows, as)
	return list, failed(sql, err)
}

// one returns the row of a statement, if there is one.
func one[T any](
	ctx context.Context, on querier, as pgx.RowToFunc[T], sql string, args ...any,
) (row T, found bool, err error) {
	list, err := all(ctx, on, as, sql, args...)
	if err != nil || len(list) == 0 {
		return row, false, err
	}
	return list[0], true, nil
}

// forget deletes the rows of a person in some tables, in one transaction.
func forget(ctx context.Context, on querier, person uuid.UUID, tables ...string) error {
	b := &pgx.Batch{}
	for _, table := range tables {
		b.Queue(`delete from `+table+` where person_id = $1`, person)
	}
	return failed("forget a person", on.SendBatch(ctx, b).Close())
}

// seal makes a text that open reads again for the same id.
func (s *Service) seal(id uuid.UUID, clear string) (string, error) {
	sealed, err := s.Sealer.Seal(id, clear)
	return sealed.Key + "." + base64.RawURLEncoding.EncodeToString(sealed.Data), err
}

// open returns what seal sealed.
func (s *Service) open(id uuid.UUID, text string) (clear string, err error) {
	key, encoded, _ := strings.Cut(text, ".")
	data, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return "", errors.New("a sealed text is damaged")
	}
	return s.Sealer.Open(id, secret.Sealed{Key: key, Data: data})
}
