package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestPool(t *testing.T) {
	t.Parallel()
	s := start(t, Config{DataDir: t.TempDir()})
	t.Run("reads times in UTC and knows uuids", func(t *testing.T) { readsUTCAndKnowsUUIDs(t, s) })
	t.Run("drops read-only sessions", func(t *testing.T) { dropsReadOnlySessions(t, s) })
	t.Run("describes behind a pooler", func(t *testing.T) { describesBehindAPooler(t, s) })
	t.Run("takes its size from the address", func(t *testing.T) { takesItsSizeFromTheAddress(t, s) })
}

func readsUTCAndKnowsUUIDs(t *testing.T, s *Server) {
	pool, err := OpenPool(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if got := pool.Config().MaxConns; got != 16 {
		t.Errorf("at most %d connections, want 16", got)
	}
	ids := []uuid.UUID{uuid.Nil, uuid.NewSHA1(uuid.Nil, []byte("a"))}
	now := time.Date(2026, 3, 4, 5, 6, 7, 8000, time.FixedZone("somewhere", 7200))
	var gotIDs []uuid.UUID
	var gotID uuid.UUID
	var gotTime time.Time
	var gotTimes []time.Time
	err = pool.QueryRow(t.Context(), "select $1::uuid[], $2::uuid, $3::timestamptz, $4::timestamptz[]",
		ids, ids[1], now, []time.Time{now}).Scan(&gotIDs, &gotID, &gotTime, &gotTimes)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ids, gotIDs); diff != "" || gotID != ids[1] {
		t.Errorf("ids: %s %s", diff, gotID)
	}
	if gotTime != now.UTC() || gotTimes[0] != now.UTC() {
		t.Errorf("read %v and %v, want %v", gotTime, gotTimes[0], now.UTC())
	}
}

func takesItsSizeFromTheAddress(t *testing.T, s *Server) {
	pool, err := OpenPool(t.Context(), s.URL()+"&pool_max_conns=3")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if got := pool.Config().MaxConns; got != 3 {
		t.Errorf("at most %d connections, want 3", got)
	}
}

// A read-only session does not stay in the pool, and neither do those that were opened with it.
func dropsReadOnlySessions(t *testing.T, s *Server) {
	admin, err := OpenPool(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	set := func(value string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), `alter role `+role+` set default_transaction_read_only = `+value); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.Exec(t.Context(), `create table written (n int)`); err != nil {
		t.Fatal(err)
	}
	set("on")
	pool, err := OpenPool(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var held []*pgxpool.Conn
	for range 4 {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	for _, conn := range held {
		conn.Release()
	}
	_, err = pool.Exec(t.Context(), `insert into written values (1)`)
	if refused, is := errors.AsType[*pgconn.PgError](err); !is || refused.Code != readOnlyTransaction {
		t.Fatalf("a read-only session writes: %v", err)
	}
	set("off")
	if _, err := pool.Exec(t.Context(), `insert into written values (1)`); err == nil {
		return
	}
	// The first refusal came before the end of the state. The second one ends the sessions.
	if _, err := pool.Exec(t.Context(), `insert into written values (1)`); err != nil {
		t.Errorf("read-only sessions stay in the pool: %v", err)
	}
}

// fakePooler forwards to a server and gives its own number of the session, as PgBouncer does in every mode.
func fakePooler(t *testing.T, s *Server) (port string) {
	t.Helper()
	to, err := pgconn.ParseConfig(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	network, address := pgconn.NetworkAddress(to.Host, to.Port)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); _ = listener.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer client.Close()
				server, err := (&net.Dialer{}).DialContext(ctx, network, address)
				if err != nil {
					return
				}
				defer server.Close()
				defer context.AfterFunc(ctx, func() { _ = client.Close(); _ = server.Close() })()
				renumber(client, server)
			})
		}
	})
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return port
}

// renumber copies the messages of both sides, with another number of the session.
func renumber(client, server net.Conn) {
	back := pgproto3.NewBackend(client, client)
	startup, err := back.ReceiveStartupMessage()
	if err != nil {
		return
	}
	front := pgproto3.NewFrontend(server, server)
	front.Send(startup)
	if front.Flush() != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer client.Close()
		for {
			m, err := front.Receive()
			if err != nil {
				return
			}
			if key, is := m.(*pgproto3.BackendKeyData); is {
				m = &pgproto3.BackendKeyData{ProcessID: key.ProcessID + 1, SecretKey: key.SecretKey}
			}
			back.Send(m)
			if back.Flush() != nil {
				return
			}
			if back.SetAuthType(front.GetAuthType()) != nil {
				return
			}
		}
	}()
	for {
		m, err := back.Receive()
		if err != nil {
			break
		}
		front.Send(m)
		if front.Flush() != nil {
			break
		}
	}
	_ = server.Close()
	<-done
}

// Through a pooler nothing is prepared in a session, unless the address chooses it.
func describesBehindAPooler(t *testing.T, s *Server) {
	through := fmt.Sprintf("postgres://%s@127.0.0.1:%s/%s?sslmode=disable", role, fakePooler(t, s), database)
	for address, want := range map[string]pgx.QueryExecMode{
		s.URL(): pgx.QueryExecModeCacheStatement,
		through: pgx.QueryExecModeCacheDescribe,
		through + "&default_query_exec_mode=cache_statement": pgx.QueryExecModeCacheStatement,
		through + "&default_query_exec_mode=exec":            pgx.QueryExecModeExec,
	} {
		pool, err := OpenPool(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		var prepared int
		for range 3 {
			err = errors.Join(err, pool.QueryRow(t.Context(), `select count(*) from pg_prepared_statements where $1 > 0`, 1).
				Scan(&prepared))
		}
		conn, acquired := pool.Acquire(t.Context())
		if err != nil || acquired != nil {
			t.Fatal(err, acquired)
		}
		got, prepares := conn.Conn().Config().DefaultQueryExecMode, want == pgx.QueryExecModeCacheStatement
		if got != want || prepared > 0 != prepares {
			t.Errorf("%s: mode %v with %d statements prepared, want %v", address, got, prepared, want)
		}
		conn.Release()
		pool.Close()
	}
}

func TestNewPool_RequiresThePrimaryOfSeveralHosts(t *testing.T) {
	for address, want := range map[string]bool{
		"postgres://a@one,two/x":                                 true,
		"postgres://a@one:5432,one:5433/x":                       true,
		"postgres://a@one/x":                                     false,
		"postgres://a@one/x?sslmode=prefer":                      false,
		"host=one,two user=a dbname=x":                           true,
		"postgres://a@one,two/x?target_session_attrs=any":        false,
		"postgres://a@one,two/x?target_session_attrs=read-write": true,
	} {
		pool, err := NewPool(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		if got := pool.Config().ConnConfig.ValidateConnect != nil; got != want {
			t.Errorf("%s: requires a server that takes writes: %t, want %t", address, got, want)
		}
		pool.Close()
	}
}

// The error of an address quotes nothing of it: what looks like a part of the host may be of the password.
func TestNewPool_QuotesNoAddress(t *testing.T) {
	for _, address := range []string{
		"postgres://annals:x/y?marigold&z@host/db", "postgres://annals:marigold@host:marigold/db",
		"postgres://annals:mari%gold@host/db", "host=one password=mari'gold user='a",
		"postgres://annals:p@host/db?sslmode=marigold", "postgres://annals:p@host/db?pool_max_conns=marigold",
	} {
		_, err := NewPool(t.Context(), address)
		if err == nil || strings.Contains(err.Error(), "gold") || !strings.Contains(err.Error(), "percent-encoded") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
