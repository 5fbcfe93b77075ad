package ops

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/ownership"
	"github.com/annals-project/annals/internal/pg/schemas"
	"github.com/annals-project/annals/internal/projection"
)

// CheckOwner returns an *ownership.ForeignError for the first schema of a database that has the name of one of ours, or
// of what a rebuild leaves, and is not proved to be of a log; uuid.Nil is a log that has no event yet. It only reads.
func CheckOwner(ctx context.Context, db *pgxpool.Pool, logID uuid.UUID) error {
	prefix := pg.SchemaPrefixOf(db)
	schema := prefix.Name(schemas.Ops)
	all, err := ownSchemas(ctx, db, prefix)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Name == schema && !s.Marked {
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

// takeOver returns nil if schema ops, which has no mark, was made by an earlier version and belongs to a log: the
// projections in the database are of that log, or the tables are empty.
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
			return fmt.Errorf("%w; if an earlier version of this program made it for the log of the event store, run: %s",
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

// own makes schema ops for a log, or checks that it is of the log. It marks what an earlier version made. With uuid.Nil
// a new schema gets no mark, and an existing one may be of any log.
func own(ctx context.Context, tx pgx.Tx, prefix schemas.Prefix, logID uuid.UUID) error {
	schema := prefix.Name(schemas.Ops)
	all, err := ownSchemas(ctx, tx, prefix)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(s ownership.Schema) bool { return s.Name == schema })
	if i < 0 {
		if _, err := tx.Exec(ctx, "create schema "+schema); err != nil {
			return err
		}
		all = append(all, ownership.Schema{Name: schema, Owned: true})
	} else if logID == uuid.Nil {
		return ofProgram(ctx, tx, all[i])
	} else if all[i].Marked {
		return all[i].Require(logID)
	} else if err := takeOver(ctx, tx, all, schema, logID); err != nil {
		return err
	}
	if logID == uuid.Nil {
		return nil
	}
	var live []string
	for _, name := range projection.Names() {
		live = append(live, prefix.Name(name))
	}
	for _, s := range all {
		ours := s.Name == schema || slices.Contains(live, s.Name) && s.Require(logID) == nil
		if s.Marked || !s.Owned || !ours {
			continue
		}
		if _, err := tx.Exec(ctx, ownership.MarkStatement(s.Name, logID)); err != nil {
			return err
		}
	}
	return nil
}

// ofProgram returns an error unless this program made schema ops, for whatever log.
func ofProgram(ctx context.Context, db ownership.Querier, ops ownership.Schema) error {
	if ops.Marked {
		return nil
	}
	tables, err := tablesOf(ctx, db, ops.Name)
	if err == nil && !slices.Contains(tables, "migrations") {
		err = ops.Require(uuid.Nil)
	}
	return err
}
