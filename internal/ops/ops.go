// Package ops makes the tables of schema ops: what is not derived from the event log, and is lost with the database.
//
// Each owner has a folder here and makes its tables in one file. The owner is one package with those below it, and
// nobody else writes its tables. A later version of an owner's tables is a second file in its folder: 2.sql changes
// what 1.sql made. A new owner is a folder and a line in Owners.
package ops

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/ownership"
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
// log; a schema that is not of that log is an *ownership.ForeignError. With uuid.Nil the log is not known:
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

// CheckOwner returns an *ownership.ForeignError for the first schema of a database that has the name of one of ours, or
// of what a rebuild leaves, and is not of a log; uuid.Nil is a log that has no event yet. It only reads.
func CheckOwner(ctx context.Context, db *pgxpool.Pool, logID uuid.UUID) error {
	prefix := pg.SchemaPrefixOf(db)
	schema := prefix.Name(schemas.Ops)
	all, err := ownSchemas(ctx, db, prefix)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Name == schema && s.LogID == uuid.Nil {
			err = takeOver(ctx, db, all, schema, logID)
		} else {
			err = s.Require(logID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ownSchemas returns the schemas with a name of ours: ops, that of a projection, of its shadow or of one that was live
// before.
func ownSchemas(ctx context.Context, db ownership.Querier, prefix schemas.Prefix) ([]ownership.Schema, error) {
	return ownership.Find(ctx, db, []string{prefix.Name(schemas.Ops)}, prefix.Projections())
}

// takeOver returns nil if schema ops, which has no mark, was made while the log was not known, and belongs to it: the
// tables are empty, or the projections in the database are of that log.
func takeOver(
	ctx context.Context, db ownership.Querier, all []ownership.Schema, schema string, logID uuid.UUID,
) error {
	foreign := ownership.Schema{Name: schema}.Require(logID)
	tables, err := tablesOf(ctx, db, schema)
	if err != nil {
		return err
	}
	if !slices.Contains(tables, "migrations") {
		return foreign
	}
	for _, s := range all {
		if s.Name != schema && s.Require(logID) == nil {
			return nil
		}
	}
	for _, table := range tables {
		var filled bool
		name := pgx.Identifier{schema, table}.Sanitize()
		if err := db.QueryRow(ctx, `select exists (select from `+name+`)`).Scan(&filled); err != nil {
			return fmt.Errorf("look into %s: %w", name, err)
		}
		if filled && table != "migrations" {
			return fmt.Errorf("%w; if this program made it for the log of the event store, run: %s",
				foreign, ownership.MarkStatement(schema, logID))
		}
	}
	return nil
}

// tablesOf returns the tables of schema ops that can be read. It has ops.migrations only if a migration of ours ran.
func tablesOf(ctx context.Context, db ownership.Querier, schema string) ([]string, error) {
	rows, err := db.Query(ctx, `select c.relname::text from pg_class c
		where c.relnamespace = to_regnamespace($1) and c.relkind in ('r', 'p')
			and has_schema_privilege(c.relnamespace, 'usage') and has_table_privilege(c.oid, 'select')
			and (c.relname <> 'migrations' or exists (select from pg_attribute a
				where a.attrelid = c.oid and a.attname = 'applied_at'))`, schema)
	if err != nil {
		return nil, fmt.Errorf("list the tables of schema %s: %w", schema, err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// own makes schema ops for a log, or checks that it is of the log, and marks it. With uuid.Nil a new schema gets no
// mark, and an existing one may be of any log.
func own(ctx context.Context, tx pgx.Tx, prefix schemas.Prefix, logID uuid.UUID) error {
	schema := prefix.Name(schemas.Ops)
	all, err := ownSchemas(ctx, tx, prefix)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(s ownership.Schema) bool { return s.Name == schema })
	switch {
	case i < 0:
		_, err = tx.Exec(ctx, "create schema "+schema)
	case logID == uuid.Nil:
		return ofProgram(ctx, tx, all[i])
	case all[i].LogID != uuid.Nil:
		return all[i].Require(logID)
	default:
		err = takeOver(ctx, tx, all, schema, logID)
	}
	if err != nil || logID == uuid.Nil {
		return err
	}
	_, err = tx.Exec(ctx, ownership.MarkStatement(schema, logID))
	return err
}

// ofProgram returns an error unless this program made schema ops, for whatever log.
func ofProgram(ctx context.Context, db ownership.Querier, ops ownership.Schema) error {
	if ops.LogID != uuid.Nil {
		return nil
	}
	tables, err := tablesOf(ctx, db, ops.Name)
	if err == nil && !slices.Contains(tables, "migrations") {
		err = ops.Require(uuid.Nil)
	}
	return err
}

// Problem is why the tables of schema ops cannot be used, though the server answers.
type Problem struct{ text string }

func (p *Problem) Error() string { return p.text }

// denied lists the tables of schema ops that the role may not read and write. Each name of a privilege is asked for
// separately: of several at once, one is enough. It fails if the schema is missing or may not be used.
const denied = `with migrated as (select count(*) from ops.migrations)
	select coalesce((select string_agg(c.relname, ', ' order by c.relname)
	from pg_class c
	where c.relnamespace = to_regnamespace('ops') and c.relkind in ('r', 'p') and not (has_table_privilege(c.oid, 'select')
		and has_table_privilege(c.oid, 'insert') and has_table_privilege(c.oid, 'update')
		and has_table_privilege(c.oid, 'delete'))), '') from migrated`

// Check reports whether schema ops can be read and written. The error is a *Problem if the server answers.
func Check(ctx context.Context, db *pgxpool.Pool) error {
	var tables string
	schema := pg.SchemaPrefixOf(db).Name(schemas.Ops)
	err := db.QueryRow(ctx, denied).Scan(&tables)
	if refused, is := errors.AsType[*pgconn.PgError](err); is {
		text := "schema " + schema + ": the database returned error " + refused.Code
		if cause := pg.Cause(refused); cause != "" {
			text += " (" + cause + ")"
		}
		return &Problem{text}
	}
	switch {
	case err != nil:
		return fmt.Errorf("check schema %s: %w", schema, err)
	case tables != "":
		return &Problem{"schema " + schema + ": the role of ANNALS_POSTGRES may not read and write " + tables}
	}
	return nil
}

// awaited names a table of some schemas for which sessions of the role have waited for seconds, and a session that
// holds it. A wait for a row is none: those are short.
const awaited = `select coalesce((select l.relation::regclass::text || coalesce(', which session ' ||
		(pg_blocking_pids(l.pid))[1] || ' has locked', '')
	from pg_locks l join pg_stat_activity a on a.pid = l.pid
		join pg_class c on c.oid = l.relation join pg_namespace n on n.oid = c.relnamespace
	where not l.granted and l.locktype = 'relation' and a.usename = current_user and n.nspname::text = any($1::text[])
		and l.database = (select oid from pg_database where datname = current_database())
		and l.waitstart < clock_timestamp() - interval '5 seconds'
	order by l.waitstart limit 1), '')`

// AwaitedLock returns the table for which statements of the service have waited the longest, "" if none has for five
// seconds: somebody else holds a lock on it.
func AwaitedLock(ctx context.Context, db *pgxpool.Pool) (table string, err error) {
	prefix, names := pg.SchemaPrefixOf(db), schemas.Names()
	for i, name := range names {
		names[i] = prefix.Name(name)
	}
	if err := db.QueryRow(ctx, awaited, names).Scan(&table); err != nil {
		return "", fmt.Errorf("look for awaited locks: %w", err)
	}
	return table, nil
}
