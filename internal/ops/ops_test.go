package ops_test

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// empty returns a database without schema ops.
func empty(t *testing.T) *pgxpool.Pool {
	t.Helper()
	admin := pgtest.Database(t)
	name := fmt.Sprintf("annals_ops_%d", os.Getpid())
	exec(t, admin, "create database "+name)
	db, err := pg.OpenPool(t.Context(), pgtest.URL(t), func(c *pgxpool.Config) { c.ConnConfig.Database = name })
	runtest.Must(t, err)
	t.Cleanup(func() {
		db.Close()
		if _, err := admin.Exec(runtest.Context(t), "drop database "+name); err != nil {
			t.Error(err)
		}
	})
	return db
}

func exec(t *testing.T, db *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestMigrate_ProcessesThatStartTogether(t *testing.T) {
	db := empty(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := ops.Migrate(t.Context(), db, uuid.Nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var files, owners, tables int
	runtest.Must(t, db.QueryRow(t.Context(), `select count(*), count(distinct split_part(file, '/', 1)),
		(select count(*) from pg_tables where schemaname = annals_schema_prefix() || 'ops' and tablename in ('leases', 'seen', 'embedding_model'))
		from ops.migrations`).Scan(&files, &owners, &tables))
	if want := len(ops.Owners()); owners != want || files < want || tables != 3 {
		t.Errorf("%d files of %d owners ran, want one or more of each of %d; %d of 3 tables", files, owners, want, tables)
	}
}

func TestMigrate_ThatFails(t *testing.T) {
	db := empty(t)
	exec(t, db, "create schema ops; create table ops.embedding_model (unknown text)")
	if err := ops.Migrate(t.Context(), db, uuid.Nil); err == nil {
		t.Fatal("a table of another program is taken for ours")
	}
	var tables int
	runtest.Must(t, db.QueryRow(t.Context(), `select count(*) from pg_tables where schemaname = annals_schema_prefix() || 'ops'`).Scan(&tables))
	if tables != 1 {
		t.Errorf("%d tables, want the one from before", tables)
	}
}

func TestMigrate_KeepsNoStatisticsOfSealedKeys(t *testing.T) {
	db := pgtest.Database(t)
	exec(t, db, `insert into ops.sealed_keys (key_id, seal_key, sealed)
		select gen_random_uuid(), 'one', decode('00', 'hex') from generate_series(1, 100)`)
	exec(t, db, "analyze ops.sealed_keys")
	var columns []string
	runtest.Must(t, db.QueryRow(t.Context(), `select array_agg(attname::text order by attname) from pg_stats
		where schemaname = annals_schema_prefix() || 'ops' and tablename = 'sealed_keys'`).Scan(&columns))
	if fmt.Sprint(columns) != "[kept_at key_id seal_key]" {
		t.Errorf("Postgres keeps statistics of %v", columns)
	}
}
