package ops_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/ops"
)

// A schema that is gone or closed to the role is a problem, though the server answers.
func TestCheck(t *testing.T) {
	db := empty(t)
	if err := ops.Migrate(t.Context(), db, uuid.Nil); err != nil {
		t.Fatal(err)
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`create role ops_check_reader`)
	defer exec(`drop owned by ops_check_reader; drop role ops_check_reader`)
	limited := db.Config()
	limited.ConnConfig.RuntimeParams["role"] = "ops_check_reader"
	reader, err := pgxpool.NewWithConfig(t.Context(), limited)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	want := func(of *pgxpool.Pool, part string) {
		t.Helper()
		err := ops.Check(t.Context(), of)
		if part == "" && err == nil {
			return
		}
		if problem, is := errors.AsType[*ops.Problem](err); !is || part == "" || !strings.Contains(problem.Error(), part) {
			t.Errorf("%v, want %q", err, part)
		}
	}
	want(db, "")
	want(reader, "42501 (the role of ANNALS_POSTGRES lacks a right")
	exec(`grant usage on schema ops to ops_check_reader; grant select on all tables in schema ops to ops_check_reader`)
	want(reader, "may not read and write")
	exec(`grant insert, update, delete on all tables in schema ops to ops_check_reader`)
	want(reader, "")
	exec(`drop schema ops cascade`)
	want(db, "42P01 (something that this program made is missing")
}
