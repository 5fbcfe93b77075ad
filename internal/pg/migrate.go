package pg

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock that lets one process migrate at a time.
const migrationLock = 0x616e6e616c73 // "annals"

// Migrate brings the schema ops, the tables that are not derived from the log, up to the version of
// this program. Processes that start together wait for each other. It opens its own connections.
func Migrate(ctx context.Context, pool *pgxpool.Pool) (err error) {
	db := stdlib.OpenDB(*pool.Config().ConnConfig)
	defer func() { err = errors.Join(err, db.Close()) }()
	lock, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrate schema ops: %w", err)
	}
	// Closing the session also releases the lock.
	defer func() { err = errors.Join(err, lock.Close()) }()
	if _, err := lock.ExecContext(ctx, "select pg_advisory_lock($1)", int64(migrationLock)); err != nil {
		return fmt.Errorf("migrate schema ops: %w", err)
	}
	if _, err := lock.ExecContext(ctx, "create schema if not exists ops"); err != nil {
		return fmt.Errorf("migrate schema ops: %w", err)
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("migrate schema ops: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName("ops.migrations"), goose.WithSlog(slog.New(slog.DiscardHandler)))
	if err != nil {
		return fmt.Errorf("migrate schema ops: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate schema ops: %w", err)
	}
	return nil
}
