package switchover_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/pg/switchover"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// fixture is a projection with two tables of one row each, and its shadow, whose rows are different.
type fixture struct {
	t  *testing.T
	db *pgxpool.Pool
}

func (f *fixture) exec(sql string) {
	f.t.Helper()
	if _, err := f.db.Exec(context.WithoutCancel(f.t.Context()), sql); err != nil {
		f.t.Fatal(err)
	}
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t, pgtest.Database(t)}
	f.exec(`create schema trace; create table trace.checkpoint (); create table trace.green (n int);
		create table trace.red (n int); insert into trace.green values (0); insert into trace.red values (0)`)
	f.shadow(1)
	return f
}

func (f *fixture) shadow(n int) {
	f.t.Helper()
	f.exec(`create schema trace_next; create table trace_next.checkpoint (); create table trace_next.green (n int);
		create table trace_next.red (n int)`)
	_, err := f.db.Exec(f.t.Context(), `with g as (insert into trace_next.green values ($1))
		insert into trace_next.red values ($1)`, n)
	if err != nil {
		f.t.Fatal(err)
	}
}

// switchOver makes the shadow live.
func (f *fixture) switchOver() {
	f.t.Helper()
	f.exec(`begin; alter schema trace rename to trace_old; alter schema trace_next rename to trace; commit;
		drop schema if exists trace_older cascade; alter schema trace_old rename to trace_older`)
}

// read reads both tables, with meanwhile in between.
func (f *fixture) read(meanwhile func()) (green, red, tries int, err error) {
	err = switchover.Snapshot(f.t.Context(), f.db, []string{"trace"}, func(ctx context.Context, tx pgx.Tx) error {
		tries++
		if err := tx.QueryRow(ctx, `select n from trace.green`).Scan(&green); err != nil {
			return err
		}
		meanwhile()
		return tx.QueryRow(ctx, `select n from trace.red`).Scan(&red)
	})
	return green, red, tries, err
}

func TestSnapshot_SwitchedWithin(t *testing.T) {
	f := newFixture(t)
	if green, red, tries, err := f.read(func() {}); green != 0 || red != 0 || tries != 1 || err != nil {
		t.Errorf("without a switch-over: %d, %d, %d tries, %v", green, red, tries, err)
	}
	switched := false
	green, red, tries, err := f.read(func() {
		if !switched {
			f.switchOver()
			switched = true
		}
	})
	if green != 1 || red != 1 || tries != 2 || err != nil {
		t.Errorf("with a switch-over: %d, %d, %d tries, %v", green, red, tries, err)
	}
	n := 1
	green, red, tries, err = f.read(func() {
		n++
		f.shadow(n)
		f.switchOver()
	})
	if tries != switchover.Tries || !errors.Is(err, switchover.Err) {
		t.Errorf("with a switch-over each time: %d, %d, %d tries, %v", green, red, tries, err)
	}
}

func TestWatch_NeedsBothLooks(t *testing.T) {
	f := newFixture(t)
	w, b := switchover.New("trace", "pears"), new(pgx.Batch)
	w.Begin(b)
	if err := f.db.SendBatch(t.Context(), b).Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Check(); !errors.Is(err, switchover.Err) {
		t.Errorf("with the first look only: %v", err)
	}
	b = new(pgx.Batch)
	w.End(b)
	if err := f.db.SendBatch(t.Context(), b).Close(); err != nil || w.Check() != nil {
		t.Errorf("with both: %v, %v", err, w.Check())
	}
}
