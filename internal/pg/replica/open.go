package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/internal/pg"
)

const (
	// startLimit bounds the check of the replica at the start, connectLimit one connection, unless the
	// address has a connect_timeout.
	startLimit   = 5 * time.Second
	connectLimit = 2 * time.Second
	// connectionLife bounds how long a connection is used, so that the first host of the address is
	// used again some time after it has returned.
	connectionLife = 10 * time.Minute
)

// CheckURL returns why an address cannot be that of a replica. It does not quote the address,
// which may contain a password.
func CheckURL(url string) error {
	scheme, _, ok := strings.Cut(url, "://")
	if ok && (scheme == "postgres" || scheme == "postgresql") {
		if _, err := pgxpool.ParseConfig(url); err == nil {
			return nil
		}
	}
	return errors.New("is no address such as postgres://user@host1,host2:5432/annals; " +
		"percent-encode special characters of a password, and name files that exist")
}

// identity names a database: a replica has that of its primary.
type identity struct {
	cluster  string // the system identifier, chosen when the cluster was initialized
	database string
}

const selectIdentity = `select system_identifier::text, current_database()::text, pg_is_in_recovery()::text
	from pg_control_system()`

// readIdentity reads the identity of a server, and whether it is a standby.
func readIdentity(ctx context.Context, conn *pgconn.PgConn) (i identity, standby bool, err error) {
	results, err := conn.Exec(ctx, selectIdentity).ReadAll()
	if err != nil {
		return identity{}, false, fmt.Errorf("read the identity of the server: %w", err)
	}
	row := results[0].Rows[0]
	return identity{cluster: string(row[0]), database: string(row[1])}, string(row[2]) == "true", nil
}

// check accepts a connection to a standby of the primary. Of several hosts, the first that it accepts is
// used.
func (r *Reader) check(ctx context.Context, conn *pgconn.PgConn) error {
	is, standby, err := readIdentity(ctx, conn)
	switch {
	case err != nil:
		return err
	case is != r.primary:
		return &wrongServerError{is: is, want: r.primary}
	case !standby:
		return pgconn.ErrPrimaryConnection
	}
	return nil
}

// wrongServerError means that the address names a server that is not a replica of the primary.
type wrongServerError struct{ is, want identity }

// Error implements error.
func (e *wrongServerError) Error() string {
	if e.is.cluster != e.want.cluster {
		return fmt.Sprintf("it is a server of another cluster (system identifier %s) than the primary (%s)",
			e.is.cluster, e.want.cluster)
	}
	return fmt.Sprintf("it names the database %q, but the primary's is %q", e.is.database, e.want.database)
}

// Open opens the connections to the replicas. It fails if the first one that responds can never
// serve: it refuses the user, or belongs to another cluster or database than the primary. One that
// does not respond, or is not a standby, gets no reads until it does. Call Run, and Close after
// it.
func Open(ctx context.Context, cfg Config) (*Reader, error) {
	if err := CheckURL(cfg.URL); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	r := &Reader{
		cfg: cfg, failed: make(chan struct{}, 1), selects: map[string]string{},
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "annals_postgres_replica_reads_total",
			Help: "Reads that a replica may answer, by what became of them: all but served were made at the primary.",
		}, []string{"kind", "result"}),
	}
	var err error
	if err := cfg.Primary.AcquireFunc(ctx, func(conn *pgxpool.Conn) (err error) {
		r.primary, _, err = readIdentity(ctx, conn.Conn().PgConn())
		return err
	}); err != nil {
		return nil, fmt.Errorf("the primary: %w", err)
	}
	prefix := pg.SchemaPrefix(string(pg.SchemaPrefixOf(cfg.Primary)))
	if r.pool, err = pg.NewPool(ctx, cfg.URL, prefix, r.configure); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	switch err := r.probe(limited); {
	case err == nil:
		r.up.Store(true)
	case isWrong(err):
		r.pool.Close()
		return nil, err
	default:
		r.report(ctx, err)
	}
	return r, nil
}

// configure makes a pool check that each connection is to a replica of the primary.
func (r *Reader) configure(c *pgxpool.Config) {
	c.ConnConfig.ConnectTimeout = cmp.Or(c.ConnConfig.ConnectTimeout, connectLimit)
	c.MaxConnLifetime = connectionLife
	c.ConnConfig.ValidateConnect = r.check
}

// isWrong reports whether an error is permanent: the setting is wrong.
func isWrong(err error) bool {
	if _, wrong := errors.AsType[*wrongServerError](err); wrong {
		return true
	}
	refused, ok := errors.AsType[*pgconn.PgError](err)
	// The user or its password is refused; the database does not exist.
	return ok && (strings.HasPrefix(refused.Code, "28") || refused.Code == "3D000" || refused.Code == "42501")
}

// Close closes the connections. No read may follow.
func (r *Reader) Close() {
	if r != nil {
		r.pool.Close()
	}
}
