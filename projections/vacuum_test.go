package projections_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/projections"
)

// shelf keeps text in one table.
type shelf struct{}

func (shelf) Name() string         { return "shelf" }
func (shelf) TextTables() []string { return []string{"books"} }
func (shelf) Schema() string {
	return `create table books (id int primary key, title text not null); create index books_by_title on books (title)`
}

func newShelf(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := pgtest.Database(t)
	exec(t, db, "create schema shelf; set search_path = shelf; "+shelf{}.Schema()+"; reset search_path")
	exec(t, db, "insert into shelf.books select n, 'title ' || n from generate_series(1, 500) n")
	exec(t, db, "alter table shelf.books set (autovacuum_enabled = off)")
	return db
}

func exec(t *testing.T, db *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// dead counts the dead versions of rows as the last vacuum reported them.
func dead(t *testing.T, db *pgxpool.Pool) (n int) {
	t.Helper()
	exec(t, db, "select pg_stat_clear_snapshot()")
	if err := db.QueryRow(t.Context(), "select n_dead_tup from pg_stat_user_tables where schemaname = 'shelf' and relname = 'books'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestVacuumRemovesEveryDeadRow(t *testing.T) {
	db := newShelf(t)
	exec(t, db, "delete from shelf.books where id % 100 = 0") // so few that Postgres would pass over the index by itself
	n, err := projections.Vacuum{DB: db, Keepers: []projections.TextKeeper{shelf{}}}.Vacuum(t.Context())
	if err != nil || n != 1 {
		t.Fatalf("%d tables, %v", n, err)
	}
	if n := dead(t, db); n != 0 {
		t.Errorf("%d dead rows are left", n)
	}
	var entries float32
	if err := db.QueryRow(t.Context(), "select reltuples from pg_class where relname = 'books_by_title'").Scan(&entries); err != nil || entries != 495 {
		t.Errorf("the index has %v entries, %v, want 495: vacuum passed it over", entries, err)
	}
}

func TestVacuumWaitsForWhoStillSeesWhatWasDeleted(t *testing.T) {
	db := newShelf(t)
	reader, err := db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	var one int
	if err := reader.QueryRow(t.Context(), "select count(*) from shelf.books").Scan(&one); err != nil {
		t.Fatal(err)
	}
	exec(t, db, "delete from shelf.books where id <= 10")
	v := projections.Vacuum{DB: db, Keepers: []projections.TextKeeper{shelf{}}}
	defer func() { _ = reader.Rollback(context.WithoutCancel(t.Context())) }() // the pool is closed once nobody holds a connection
	// A slow machine does not get as far as to see the reader in a short time.
	for patience := 300 * time.Millisecond; ; patience *= 2 {
		short, cancel := context.WithTimeout(t.Context(), patience)
		_, err := v.Vacuum(short)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("beside a reader that sees them: %v", err)
		}
		if strings.Contains(err.Error(), "still see what was deleted") {
			break
		}
		if patience > time.Minute {
			t.Fatalf("it never waited for the reader: %v", err)
		}
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Vacuum(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := dead(t, db); n != 0 {
		t.Errorf("%d dead rows are left", n)
	}
}
