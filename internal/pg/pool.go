package pg

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

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
