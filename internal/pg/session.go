package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg/schemas"
)

// errPooler means that a connection leads to a pooler and was not opened for one. The next one is.
var errPooler = errors.New("a pooler answers for postgres, its connections are opened again")

// readOnlyTransaction is the SQLSTATE of a write in a session that is read-only.
const readOnlyTransaction = "25006"

// resetEvery is the least pause between two resets of a pool.
const resetEvery = time.Second

// sessions prepares the sessions of a pool and drops those that are of no use.
type sessions struct {
	pool atomic.Pointer[pgxpool.Pool]
	// modeChosen is true if the address chooses how statements are sent.
	modeChosen bool
	// pooled is true once a pooler was seen. One in transaction mode gives each transaction another session, so
	// statements are described and not prepared. That also works in session mode.
	pooled atomic.Bool
	reset  atomic.Int64 // when the pool was reset last, in nanoseconds
}

func (s *sessions) beforeConnect(_ context.Context, cfg *pgx.ConnConfig) error {
	prefix := schemas.Prefix(cfg.RuntimeParams[SchemaPrefixParameter])
	delete(cfg.RuntimeParams, SchemaPrefixParameter)
	cfg.BuildFrontend = frontend(prefix)
	if cfg.DefaultQueryExecMode == pgx.QueryExecModeExec {
		cfg.Tracer = batches{prefix}
	}
	if s.pooled.Load() && !s.modeChosen {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	return nil
}

func (s *sessions) afterConnect(ctx context.Context, conn *pgx.Conn) error {
	readTimesInUTC(conn.TypeMap())
	registerUUIDs(conn.TypeMap())
	if s.modeChosen || conn.Config().DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		return nil
	}
	pooled, err := isPooled(ctx, conn.PgConn())
	if err != nil || !pooled {
		return err
	}
	s.pooled.Store(true)
	return errPooler
}

// isPooled reports whether a pooler answers for the server: it gives its own number of the session.
func isPooled(ctx context.Context, conn *pgconn.PgConn) (bool, error) {
	results, err := conn.Exec(ctx, "select pg_backend_pid()").ReadAll()
	if err != nil {
		return false, fmt.Errorf("read number of the session: %w", err)
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return false, errors.New("read number of the session: no answer")
	}
	return string(results[0].Rows[0][0]) != strconv.FormatUint(uint64(conn.PID()), 10), nil
}

// dropReadOnly closes a connection whose session is read-only, and resets the pool: the others were opened in the
// same state of the server.
func (s *sessions) dropReadOnly(cfg *pgx.ConnConfig) {
	keep := cfg.OnPgError
	cfg.OnPgError = func(conn *pgconn.PgConn, refused *pgconn.PgError) bool {
		if refused.Code != readOnlyTransaction {
			return keep == nil || keep(conn, refused)
		}
		now, last := time.Now().UnixNano(), s.reset.Load()
		if pool := s.pool.Load(); pool != nil && now-last > int64(resetEvery) && s.reset.CompareAndSwap(last, now) {
			pool.Reset()
		}
		return false
	}
}

// requirePrimary makes an address with several hosts lead to the one that takes writes, unless it chooses otherwise:
// the first that answers may be a standby after a failover.
func requirePrimary(cfg *pgx.ConnConfig, url string) {
	if strings.Contains(url, "target_session_attrs") || os.Getenv("PGTARGETSESSIONATTRS") != "" ||
		cfg.ValidateConnect != nil {
		return
	}
	first := net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
	for _, other := range cfg.Fallbacks {
		if net.JoinHostPort(other.Host, strconv.Itoa(int(other.Port))) != first {
			cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
			return
		}
	}
}
