package pg_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/internal/pg"
)

func TestCausedByData(t *testing.T) {
	const outside, ofData = false, true
	for code, want := range map[string]struct {
		data  bool
		cause string // a part of it, "" for none
	}{
		// Values.
		"22001": {ofData, ""}, "22003": {ofData, ""}, "22008": {ofData, ""}, "22021": {ofData, ""}, "22023": {ofData, ""},
		"22P02": {ofData, ""}, "22P05": {ofData, ""}, "2200H": {ofData, ""}, "23502": {ofData, ""}, "23505": {ofData, ""},
		"23514": {ofData, ""}, "23P01": {ofData, ""}, "21000": {ofData, ""}, "54000": {ofData, ""}, "54001": {ofData, ""},
		// Others' keys.
		"23001": {outside, "foreign key"}, "23503": {outside, "foreign key"},
		// Rights, objects and sessions.
		"42501": {outside, "lacks a right"}, "42P01": {outside, "is missing"}, "42703": {outside, "is missing"},
		"42883": {outside, "is missing"}, "42601": {outside, ""}, "42804": {outside, ""}, "42P18": {outside, ""},
		"3F000": {outside, "is missing"}, "3D000": {outside, "database is missing"}, "54023": {outside, "is missing"},
		"28000": {outside, "the role or the password"}, "28P01": {outside, "the role or the password"},
		"25001": {outside, "session or transaction"}, "25006": {outside, "read-only"}, "25P02": {outside, "session"},
		"25P03": {outside, "session"}, "26000": {outside, "pooler"}, "42P05": {outside, "pooler"}, "34000": {outside, ""},
		"0A000": {outside, ""}, "2D000": {outside, ""}, "44000": {outside, ""},
		// The server.
		"08000": {outside, "connection"}, "08006": {outside, "connection"}, "08P01": {outside, "connection"},
		"40001": {outside, ""}, "40P01": {outside, ""}, "53000": {outside, "lacks"}, "53100": {outside, "disk"},
		"53200": {outside, "lacks"}, "53300": {outside, "no free connection"}, "55006": {outside, "locked"},
		"55P03": {outside, "locked"}, "57014": {outside, "timeout"}, "57P01": {outside, "operator"},
		"57P03": {outside, "operator"}, "58000": {outside, "files"}, "58030": {outside, "files"}, "F0000": {outside, ""},
		"HV000": {outside, ""}, "XX000": {outside, "of its own"}, "XX001": {outside, "damage"}, "XX002": {outside, "damage"},
		// Functions and triggers.
		"P0001": {outside, "trigger"}, "P0004": {outside, "trigger"}, "09000": {outside, "trigger"},
		"38000": {outside, "trigger"}, "39000": {outside, "trigger"}, "": {outside, ""}, "99999": {outside, ""},
	} {
		refused := &pgconn.PgError{Code: code, Message: "marigold"}
		cause := pg.Cause(refused)
		if pg.CausedByData(refused) != want.data || !strings.Contains(cause, want.cause) || want.cause == "" && cause != "" {
			t.Errorf("%s: caused by data %t, cause %q; want %+v", code, pg.CausedByData(refused), cause, want)
		}
	}
	for _, refused := range []*pgconn.PgError{
		{Code: "22012", Where: `PL/pgSQL function audit.note() line 3 at assignment`},
		{Code: "23505", Where: `SQL statement "insert into audit.notes …"` + "\nPL/pgSQL-Funktion audit.note() Zeile 3"},
		{Code: "22P02", Where: `SQL function "note" statement 1`},
		{Code: "23514", Routine: "exec_stmt_raise"},
	} {
		if pg.CausedByData(refused) || !strings.Contains(pg.Cause(refused), "trigger") {
			t.Errorf("%+v of a function is caused by data, cause %q", refused, pg.Cause(refused))
		}
	}
	if !pg.CausedByData(&pgconn.PgError{Code: "22P02", Where: "JSON data, line 1: {…"}) {
		t.Error("JSON that cannot be read is not caused by data")
	}
}
