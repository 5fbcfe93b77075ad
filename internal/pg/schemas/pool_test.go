package schemas_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/pg/schemas"
	"github.com/annals-project/annals/internal/runtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Every way to send a statement uses the schemas of the prefix, and a copy of the pool does too.
func TestPool(t *testing.T) {
	ctx, url := t.Context(), pgtest.URL(t)
	for _, mode := range []string{"", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			address := url
			if mode != "" {
				address += map[bool]string{true: "&", false: "?"}[strings.Contains(url, "?")] + "default_query_exec_mode=" + mode
			}
			db, err := pg.OpenPool(ctx, address, pg.SchemaPrefix("a_"))
			runtest.Must(t, err)
			defer db.Close()
			exec := func(sql string, args ...any) {
				t.Helper()
				_, err := db.Exec(ctx, sql, args...)
				runtest.Must(t, err)
			}
			exec("drop schema if exists trace cascade; create schema trace; create table trace.rows (name text)")
			exec("insert into trace.rows values ($1)", "trace.rows 'annals_schema_prefix()'")
			batch := new(pgx.Batch)
			for _, name := range []string{"one", "two"} {
				batch.Queue("insert into trace.rows values ($1)", name)
			}
			runtest.Must(t, db.SendBatch(ctx, batch).Close())
			_, err = db.CopyFrom(ctx, pgx.Identifier{"trace", "rows"}, []string{"name"}, pgx.CopyFromRows([][]any{{"copied"}}))
			runtest.Must(t, err)
			runtest.Must(t, pgx.BeginTxFunc(ctx, db, pgx.TxOptions{BeginQuery: "begin; set local search_path = trace"},
				func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "insert into rows values ('by the path')")
					return err
				}))
			copied, err := pgxpool.NewWithConfig(ctx, db.Config())
			runtest.Must(t, err)
			defer copied.Close()
			var names, where string
			runtest.Must(t, copied.QueryRow(ctx, `select string_agg(name, ',' order by name), (select string_agg(schemaname, ',')
				from pg_tables where tablename = 'rows') from trace.rows`).Scan(&names, &where))
			if want := "by the path,copied,one,trace.rows 'annals_schema_prefix()',two"; names != want || where != "a_trace" {
				t.Errorf("rows %q in schema %s", names, where)
			}
			if p := pg.SchemaPrefixOf(copied); p != "a_" {
				t.Errorf("prefix %q", p)
			}
		})
	}
}

// Services with different prefixes do not wait for each other, and one without has the keys of earlier versions.
func TestLockKey(t *testing.T) {
	url, keys := pgtest.URL(t), map[string]int64{}
	for _, prefix := range []string{"", "a_", "b_"} {
		db, err := pg.OpenPool(t.Context(), url, pg.SchemaPrefix(prefix))
		runtest.Must(t, err)
		defer db.Close()
		var key int64
		runtest.Must(t, db.QueryRow(t.Context(), `select 7::bigint # `+schemas.LockKey).Scan(&key))
		keys[prefix] = key
	}
	if keys["a_"] == keys["b_"] || keys["a_"] == 7 || keys["b_"] == 7 {
		t.Errorf("keys %v", keys)
	}
	if keys[""] != 7 && pgtest.SchemaPrefix() == "" {
		t.Errorf("without a prefix the key is %d, want 7", keys[""])
	}
}

func BenchmarkPrefix_Statement(b *testing.B) {
	sql := strings.Repeat("select d.id, d.body from datapoints.data_points d join directory.identities i on i.id = d.by\n", 20)
	b.SetBytes(int64(len(sql)))
	for b.Loop() {
		schemas.Prefix("acme_").Statement(sql)
	}
}
