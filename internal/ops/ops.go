// Package ops makes the tables of schema ops: what is not derived from the event log, and is lost with the database.
//
// Each owner has a folder here and makes its tables in one file. The owner is one package with those below it, and
// nobody else writes its tables. A later version of an owner's tables is a second file in its folder: 2.sql changes
// what 1.sql made. A new owner is a folder and a line in Owners.
package ops

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/schemas"
)

//go:embed */*.sql
var migrations embed.FS

// Owner owns some tables of schema ops.
type Owner struct {
	// Folder has the migrations, here.
	Folder string
	// Package is the one that writes the tables, a path below the root of the module.
	Package string
}

// Owners returns the owners of all tables, in the order in which their migrations run.
func Owners() []Owner {
	return []Owner{
		{"datapoints", "projections/datapoints"},
		{"secret", "internal/secret"},
		{"usage", "projections/usage"},
		{"requestlog", "internal/requestlog"},
		{"ratelimit", "internal/ratelimit"},
		{"embeddings", "projections/embeddings"},
		{"erasures", "internal/erasures"},
		{"visits", "internal/visits"},
		{"signin", "console/signin"},
		{"agents", "console/agents"},
		{"tokens", "internal/tokens"},
		{"authserver", "console/authserver"},
		{"forms", "console/forms"},
		{"audit", "internal/checkpoints"},
	}
}

// oneAtATime lets one process migrate at a time, until its transaction ends. The number is "annals".
const oneAtATime = `select pg_advisory_xact_lock(x'616e6e616c73'::bigint # ` + schemas.LockKey + `)`

const createMigrations = `create table if not exists ops.migrations (
		file       text primary key,
		applied_at timestamptz not null default now()
	)`

// Migrate brings schema ops up to the version of this program, or changes nothing. A new schema is marked as one of a
// log; a schema that is not proved to be of that log is an *ownership.ForeignError. With uuid.Nil the log is not known:
// a new schema has no mark until a process that knows it migrates, and an existing one must be of this program.
//
// Processes that start together wait for each other. Files that only a later version of the program knows do no harm.
func Migrate(ctx context.Context, pool *pgxpool.Pool, logID uuid.UUID) error {
	prefix := pg.SchemaPrefixOf(pool)
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, oneAtATime); err != nil {
			return err
		}
		if err := own(ctx, tx, prefix, logID); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, createMigrations); err != nil {
			return err
		}
		for _, owner := range Owners() {
			files, err := fs.Glob(migrations, owner.Folder+"/*.sql")
			if err != nil {
				return err
			}
			for _, file := range files {
				if err := apply(ctx, tx, file); err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("migrate schema %s: %w", prefix.Name(schemas.Ops), err)
	}
	return nil
}

// apply runs a file unless it has run.
func apply(ctx context.Context, tx pgx.Tx, file string) error {
	added, err := tx.Exec(ctx, `insert into ops.migrations (file) values ($1) on conflict do nothing`, file)
	if err != nil || added.RowsAffected() == 0 {
		return err
	}
	sql, err := migrations.ReadFile(file)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, string(sql))
	return err
}
