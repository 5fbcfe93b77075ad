package table_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/table"
	"github.com/annals-project/annals/projections/trace"
	"github.com/annals-project/annals/projections/usage"
)

// A table is read from the text of a schema as Postgres creates it: what New compares a row with is true.
func TestColumnsOf_AsPostgres(t *testing.T) {
	db, logger := pgtest.Database(t), slog.New(slog.DiscardHandler)
	for _, p := range []projectiontest.Projector{
		access.New(), datapoints.New(nil), directory.New(nil, stream.Namespaces{}, logger), embeddings.New(),
		memories.New(nil, logger), trace.NewProjector(nil), usage.New(),
	} {
		projectiontest.Make(t, db, p)
		tables := 0
		for line := range strings.Lines(p.Schema()) {
			name, is := strings.CutPrefix(strings.TrimSpace(line), "create table ")
			if !is {
				continue
			}
			tables++
			name = strings.TrimSuffix(name, " (")
			columns, key, err := table.ColumnsOf(p.Schema(), name)
			if err != nil {
				t.Errorf("table %s of %s: %v", name, p.Name(), err)
				continue
			}
			slices.Sort(key)
			created, primary := inPostgres(t, db, p.Name(), name)
			if diff := cmp.Diff(created, columns); diff != "" {
				t.Errorf("columns of table %s of %s (-Postgres +text):\n%s", name, p.Name(), diff)
			}
			if diff := cmp.Diff(primary, key); diff != "" {
				t.Errorf("key of table %s of %s (-Postgres +text):\n%s", name, p.Name(), diff)
			}
		}
		if tables == 0 {
			t.Errorf("no table of %s is found", p.Name())
		}
	}
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// inPostgres returns the columns of a table in their order, and those of its primary key by name.
func inPostgres(t *testing.T, db querier, schema, name string) (columns []table.Created, key []string) {
	t.Helper()
	rows, err := db.Query(t.Context(), `select a.attname::text,
			replace(replace(format_type(a.atttypid, null), 'timestamp with time zone', 'timestamptz'), 'integer', 'int'),
			not a.attnotnull, a.atthasdef, coalesce(a.attnum = any(i.indkey), false)
		from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid
		left join pg_index i on i.indrelid = c.oid and i.indisprimary
		where n.nspname in ($1::text, annals_schema_prefix() || $1::text) and c.relname = $2
			and a.attnum > 0 and not a.attisdropped
		order by a.attnum`, schema, name)
	runtest.Must(t, err)
	var c table.Created
	var inKey bool
	_, err = pgx.ForEachRow(rows, []any{&c.Name, &c.PgType, &c.Nullable, &c.Optional, &inKey}, func() error {
		columns = append(columns, c)
		if inKey {
			key = append(key, c.Name)
		}
		return nil
	})
	runtest.Must(t, err)
	slices.Sort(key)
	return columns, key
}
