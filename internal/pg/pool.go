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
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"
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
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to postgres: %w", err)
	}
	return pool, nil
}

// NewPool is OpenPool without waiting for a connection: the server may be unreachable.
func NewPool(ctx context.Context, url string, configure ...func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("address of postgres: %w", err)
	}
	plain, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("address of postgres: %w", err)
	}
	// pgx's own parser leaves a pool setting among the parameters of the session.
	if _, chosen := plain.RuntimeParams["pool_max_conns"]; !chosen {
		cfg.MaxConns = defaultConnections
	}
	if _, named := cfg.ConnConfig.RuntimeParams["application_name"]; !named {
		cfg.ConnConfig.RuntimeParams["application_name"] = "annals"
	}
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		readTimesInUTC(conn.TypeMap())
		pgxuuid.Register(conn.TypeMap())
		return nil
	}
	for _, change := range configure {
		change(cfg)
	}
	cfg.ConnConfig.ConnectTimeout = cmp.Or(cfg.ConnConfig.ConnectTimeout, 10*time.Second)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open pool: %w", err)
	}
	return pool, nil
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
