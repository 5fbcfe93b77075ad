package pgtest_test

import (
	"testing"

	"github.com/annals-project/annals/internal/pg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestDatabasesAreApart(t *testing.T) {
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
