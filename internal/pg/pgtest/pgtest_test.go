package pgtest_test

import (
	"testing"

	"github.com/annals-project/annals/internal/pg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestDatabase_OfTwoTests(t *testing.T) {
	ctx := t.Context()
	one, other := pgtest.Database(t), pgtest.Database(t)
	if _, err := one.Exec(ctx, "create table ops.only_here (id int)"); err != nil {
		t.Fatal(err)
	}
	var seen bool
	if err := other.QueryRow(ctx, "select to_regclass('ops.only_here') is not null").Scan(&seen); err != nil {
		t.Fatal(err)
	}
	if seen {
		t.Error("a table of one database is in the other")
	}
	var migrated bool
	if err := other.QueryRow(ctx, "select to_regclass('ops.leases') is not null").Scan(&migrated); err != nil {
		t.Fatal(err)
	}
	if !migrated {
		t.Error("schema ops is not migrated")
	}
}

func TestDatabase_ReleasedByAnotherTest(t *testing.T) {
	var name, again string
	t.Run("first", func(t *testing.T) {
		db := pgtest.Database(t)
		err := db.QueryRow(t.Context(), `with created as (
			insert into ops.leases (data_point, holder, until) values (gen_random_uuid(), 'a', now()) returning 1
		) select current_database() from created`).Scan(&name)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			"create schema projection", "create table projection.rows (id int)", "create table ops.more (id int)",
			"create table public.rows (id int)",
		} {
			if _, err := db.Exec(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	})
	t.Run("second", func(t *testing.T) {
		var left int
		err := pgtest.Database(t).QueryRow(t.Context(), `select current_database(), (select count(*) from ops.leases)
			+ (select count(*) from pg_tables where tablename in ('rows', 'more'))
			+ (select count(*) from pg_namespace where nspname = 'projection')`).Scan(&again, &left)
		if err != nil {
			t.Fatal(err)
		}
		if again != name || left != 0 {
			t.Errorf("got database %s with %d leftovers, want %s with none", again, left, name)
		}
	})
}
