package ops

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/schemas"
)

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
