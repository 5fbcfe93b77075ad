package runner_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/runner"
)

// textProjector keeps text in one table.
type textProjector struct{ projections.Base }

var shelves = textProjector{projections.NewBase(projections.Description{
	Name: "shelf", TextTables: []string{"books"},
	Schema: `create table books (id int primary key, title text not null); create index books_by_title on books (title)`,
})}

func (textProjector) Apply(context.Context, pgx.Tx, []eventstore.DecodedEvent) error { return nil }

func newShelf(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := pgtest.Database(t)
	exec(t, db, "create schema shelf; set search_path = shelf; "+shelves.Schema()+"; reset search_path")
	exec(t, db, "insert into shelf.books select n, 'title ' || n from generate_series(1, 500) n")
	exec(t, db, "alter table shelf.books set (autovacuum_enabled = off)")
	return db
}

func exec(t *testing.T, db *pgxpool.Pool, sql string) {
	t.Helper()
	_, err := db.Exec(t.Context(), sql)
	runtest.Must(t, err)
}

// dead counts the dead versions of rows as the last vacuum reported them.
func dead(t *testing.T, db *pgxpool.Pool) (n int) {
	t.Helper()
	exec(t, db, "select pg_stat_clear_snapshot()")
	runtest.Must(t, db.QueryRow(t.Context(),
		"select n_dead_tup from pg_stat_user_tables where schemaname = 'shelf' and relname = 'books'").Scan(&n))
	return n
}

func TestVacuum_RemovesEveryDeadRow(t *testing.T) {
	db := newShelf(t)
	exec(t, db, "delete from shelf.books where id % 100 = 0") // so few that Postgres skips the index by default
	n, err := runner.Vacuum{DB: db, Projectors: []projections.Projector{shelves}}.Vacuum(t.Context())
	if err != nil || n != 1 {
		t.Fatalf("%d tables, %v", n, err)
	}
	if n := dead(t, db); n != 0 {
		t.Errorf("%d dead rows are left", n)
	}
	var entries float32
	if err := db.QueryRow(t.Context(), "select reltuples from pg_class where relname = 'books_by_title'").Scan(&entries); err != nil ||
		entries != 495 {
		t.Errorf("the index has %v entries, %v, want 495: vacuum passed it over", entries, err)
	}
}

func TestVacuum_DeadRowsStillVisible(t *testing.T) {
	db := newShelf(t)
	reader, err := db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	runtest.Must(t, err)
	var one int
	runtest.Must(t, reader.QueryRow(t.Context(), "select count(*) from shelf.books").Scan(&one))
	exec(t, db, "delete from shelf.books where id <= 10")
	v := runner.Vacuum{DB: db, Projectors: []projections.Projector{shelves}}
	// the pool closes once no connection is in use
	defer func() { _ = reader.Rollback(context.WithoutCancel(t.Context())) }()
	// A slow machine needs a longer time to see the reader.
	for hangLimit := 300 * time.Millisecond; ; hangLimit *= 2 {
		short, cancel := context.WithTimeout(t.Context(), hangLimit)
		_, err := v.Vacuum(short)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("with a reader that sees them: %v", err)
		}
		if strings.Contains(err.Error(), "still see what was deleted") {
			break
		}
		if hangLimit > time.Minute {
			t.Fatalf("it never waited for the reader: %v", err)
		}
	}
	runtest.Must(t, reader.Rollback(t.Context()))
	_, err = v.Vacuum(t.Context())
	runtest.Must(t, err)
	if n := dead(t, db); n != 0 {
		t.Errorf("%d dead rows are left", n)
	}
}
