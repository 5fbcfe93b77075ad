package pg

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"

	"github.com/annals-project/annals/internal/pg/schemas"
)

// defaultConnections bounds a pool without another bound.
const defaultConnections = 16

// OpenPool opens a pool of connections and waits for its first one. Times are read in UTC. A
// setting of url, such as pool_max_conns, overrides the defaults of this function, and configure
// overrides both. The default is at most 16 connections.
func OpenPool(ctx context.Context, url string, configure ...func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	pool, err := NewPool(ctx, url, configure...)
	if err != nil {
		return nil, err
	}
	err = pool.Ping(ctx)
	if errors.Is(err, errPooler) {
		err = pool.Ping(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to postgres: %w", err)
	}
	return pool, nil
}

// NewPool is OpenPool without waiting for a connection: the server may be unreachable.
func NewPool(ctx context.Context, url string, configure ...func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errAddress
	}
	if MaxConns(url) == 0 {
		cfg.MaxConns = defaultConnections
	}
	if _, named := cfg.ConnConfig.RuntimeParams["application_name"]; !named {
		cfg.ConnConfig.RuntimeParams["application_name"] = "annals"
	}
	p := &sessions{modeChosen: strings.Contains(url, "default_query_exec_mode")}
	requirePrimary(cfg.ConnConfig, url)
	cfg.BeforeConnect, cfg.AfterConnect = p.beforeConnect, p.afterConnect
	p.dropReadOnly(cfg.ConnConfig)
	for _, change := range configure {
		change(cfg)
	}
	cfg.ConnConfig.ConnectTimeout = cmp.Or(cfg.ConnConfig.ConnectTimeout, 10*time.Second)
	if _, err := schemas.Parse(cfg.ConnConfig.RuntimeParams[SchemaPrefixParameter]); err != nil {
		return nil, fmt.Errorf("prefix of the schemas: %w", err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open pool: %w", err)
	}
	p.pool.Store(pool)
	return pool, nil
}

// SchemaPrefixParameter holds the prefix of the schemas in the configuration of a pool, so that each copy has it,
// and an address can. It is not sent to the server: a pooler could refuse it.
const SchemaPrefixParameter = "annals.schema_prefix"

// SchemaPrefix configures a pool for schemas whose names begin with a prefix. With "" that of the address stays.
func SchemaPrefix(prefix string) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) {
		if prefix != "" {
			cfg.ConnConfig.RuntimeParams[SchemaPrefixParameter] = prefix
		}
	}
}

// SchemaPrefixOf returns the prefix of the schemas of a pool.
func SchemaPrefixOf(pool *pgxpool.Pool) schemas.Prefix {
	return schemas.Prefix(pool.Config().ConnConfig.RuntimeParams[SchemaPrefixParameter])
}

// errAddress has no detail: the text of the parser may quote a part of the password.
var errAddress = errors.New("address of postgres: it cannot be parsed, or a file that it names cannot be read " +
	"(in a URL, special characters of the user and the password are percent-encoded, such as %40 for @)")

// MaxConns returns the bound that pool_max_conns of an address sets, 0 for none.
func MaxConns(url string) int32 {
	plain, err := pgx.ParseConfig(url)
	if err != nil {
		return 0
	}
	// pgx's own parser leaves a pool setting among the parameters of the session.
	if _, chosen := plain.RuntimeParams["pool_max_conns"]; !chosen {
		return 0
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return 0
	}
	return cfg.MaxConns
}

// The classes of SQLSTATE of a server that starts or stops, or has no room.
const (
	operatorIntervention = "57"
	noResources          = "53"
)

// IsRefusal reports whether the error of a connection means that the server refuses it
// permanently, or that the address is wrong. Otherwise a later try may succeed: no server
// responds, or it starts or stops, or has no free connection.
func IsRefusal(err error) bool {
	if refused, is := errors.AsType[*pgconn.PgError](err); is {
		return !strings.HasPrefix(refused.Code, operatorIntervention) && !strings.HasPrefix(refused.Code, noResources)
	}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return true
	}
	_, is := errors.AsType[*pgconn.ConnectError](err)
	return !is
}

func readTimesInUTC(types *pgtype.Map) {
	element := &pgtype.Type{
		Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
	}
	types.RegisterType(element)
	types.RegisterType(&pgtype.Type{
		Name: "_timestamptz", OID: pgtype.TimestamptzArrayOID, Codec: &pgtype.ArrayCodec{ElementType: element},
	})
}

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

// uuidCodec reads and writes a uuid.UUID as the 16 bytes that it is. Without it pgx prefers the Scan method of
// uuid.UUID, for which it makes text of the bytes, and that took an eighth of the time of a recall.
type uuidCodec struct{ pgxuuid.UUIDCodec }

// registerUUIDs makes a connection take uuid.UUID.
func registerUUIDs(types *pgtype.Map) {
	pgxuuid.Register(types)
	one := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}}
	types.RegisterType(one)
	types.RegisterType(&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: &pgtype.ArrayCodec{ElementType: one}})
}

// PlanScan implements pgtype.Codec.
func (c uuidCodec) PlanScan(types *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, is := target.(*uuid.UUID); is && format == pgtype.BinaryFormatCode {
		return scanUUID{}
	}
	return c.UUIDCodec.PlanScan(types, oid, format, target)
}

// PlanEncode implements pgtype.Codec.
func (c uuidCodec) PlanEncode(types *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, is := value.(uuid.UUID); is && format == pgtype.BinaryFormatCode {
		return encodeUUID{}
	}
	return c.UUIDCodec.PlanEncode(types, oid, format, value)
}

type scanUUID struct{}

// errUUID reports a value that does not fit a uuid.UUID.
var errUUID = errors.New("no uuid of 16 bytes")

// Scan implements pgtype.ScanPlan. A null leaves the target as it is, as uuid.UUID does.
func (scanUUID) Scan(src []byte, target any) error {
	if src == nil {
		return nil
	}
	id, is := target.(*uuid.UUID)
	if !is || len(src) != len(id) {
		return errUUID
	}
	copy(id[:], src)
	return nil
}

type encodeUUID struct{}

// Encode implements pgtype.EncodePlan.
func (encodeUUID) Encode(value any, buf []byte) ([]byte, error) {
	id, is := value.(uuid.UUID)
	if !is {
		return nil, errUUID
	}
	return append(buf, id[:]...), nil
}
