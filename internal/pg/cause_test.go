package pg_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

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

// A connection that was not made is one line with each cause once, the setting, and what helps.
func TestExplained(t *testing.T) {
	refused := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	unknown := func(context.Context, string) ([]string, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "db.example.com", IsNotFound: true}
	}
	known := func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	for name, tt := range map[string]struct {
		dial       pgconn.DialFunc
		look       pgconn.LookupFunc
		want, cure string
	}{
		"nobody listens": {refused, known, "connection refused", "start the server, or check host and port"},
		"no such host":   {refused, unknown, "no such host", "check the host"},
		"no TLS":         {withoutTLS, known, "server refused TLS connection", "turn TLS on at the server, or set sslmode=disable"},
		"wrong password": {refusing("28P01"), known, "FATAL: no (SQLSTATE 28P01)", "check the user and the password"},
		"no database":    {refusing("3D000"), known, "FATAL: no (SQLSTATE 3D000)", "create the database with createdb, or name another"},
	} {
		t.Run(name, func(t *testing.T) {
			url := "postgres://annals:hidden@127.0.0.1:5432/memory"
			if name == "no TLS" {
				url += "?sslmode=require"
			}
			_, err := pg.OpenPool(t.Context(), url, func(c *pgxpool.Config) {
				c.ConnConfig.DialFunc, c.ConnConfig.LookupFunc = tt.dial, tt.look
			})
			text := pg.Explained(err, "ANNALS_POSTGRES").Error()
			if !strings.HasPrefix(text, "the database that ANNALS_POSTGRES names cannot be used: ") ||
				!strings.HasSuffix(text, " (ANNALS_POSTGRES: "+tt.cure+")") || strings.Count(text, tt.want) != 1 ||
				strings.ContainsAny(text, "\n\t") || strings.Contains(text, "hidden") {
				t.Errorf("got %s", text)
			}
			if failed := new(pgconn.ConnectError); !errors.As(pg.Explained(err, "X"), &failed) {
				t.Errorf("%v is no error of a connection", err)
			}
		})
	}
	if pg.Explained(nil, "ANNALS_POSTGRES") != nil {
		t.Error("no error is explained")
	}
}

// answering is a server that reads the first message of a client and writes an answer.
func answering(answer func(tls bool) string) pgconn.DialFunc {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer func() { _ = far.Close() }() // the client may have closed it
			message := make([]byte, 1024)
			for {
				n, err := far.Read(message)
				if err != nil {
					return
				}
				if _, err := far.Write([]byte(answer(n == 8))); err != nil { // a request for TLS has eight bytes
					return
				}
			}
		}()
		return near, nil
	}
}

// withoutTLS is a server that has none.
func withoutTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	return answering(func(bool) string { return "N" })(ctx, network, addr)
}

// refusing is a server without TLS that refuses every connection with a code.
func refusing(code string) pgconn.DialFunc {
	fields := "SFATAL\x00VFATAL\x00C" + code + "\x00Mno\x00\x00"
	return answering(func(tls bool) string {
		if tls {
			return "N"
		}
		return "E\x00\x00\x00" + string(rune(4+len(fields))) + fields
	})
}

func TestIsRefusal(t *testing.T) {
	_, silent := pg.OpenPool(t.Context(), "postgres://annals@127.0.0.1:1/annals?sslmode=disable")
	_, wrong := pg.OpenPool(t.Context(), "mysql://annals@127.0.0.1/annals")
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"nobody listens":   {silent, false},
		"server starts":    {&pgconn.PgError{Code: "57P03"}, false},
		"no room":          {fmt.Errorf("connect: %w", &pgconn.PgError{Code: "53300"}), false},
		"wrong password":   {&pgconn.PgError{Code: "28P01"}, true},
		"no such database": {&pgconn.PgError{Code: "3D000"}, true},
		"wrong address":    {wrong, true},
		"something else":   {errors.New("out of ideas"), true},
	} {
		if test.err == nil {
			t.Fatalf("%s: no error", name)
		}
		if got := pg.IsRefusal(test.err); got != test.want {
			t.Errorf("%s: %t for %v", name, got, test.err)
		}
	}
}
