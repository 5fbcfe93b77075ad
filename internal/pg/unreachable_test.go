package pg_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg"
)

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
