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

	"github.com/annals-project/annals/eventstore/backoff"
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

const (
	// probePause is the time between probes of a replica that is up, firstRetry and longestRetry that
	// between probes of one that is not.
	probePause   = 5 * time.Second
	firstRetry   = time.Second
	longestRetry = 30 * time.Second
	probeLimit   = 5 * time.Second
)

// Run watches the replica until the context ends: one that failed gets reads again once it answers.
func (r *Reader) Run(ctx context.Context) error {
	wait := backoff.Backoff{First: firstRetry, Longest: longestRetry}
	for ctx.Err() == nil {
		wasUp := r.up.Load()
		pause := probePause
		if !wasUp {
			pause = wait.Next()
			_ = backoff.Pause(ctx, pause, nil)
		} else {
			_ = backoff.Pause(ctx, pause, r.failed)
			if !r.up.Load() {
				continue // it has just failed: pause before the next probe
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		limited, cancel := context.WithTimeout(ctx, probeLimit)
		err := r.probe(limited)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && wasUp:
			r.fail(ctx, err)
		case err != nil:
			r.report(ctx, err)
		case wasUp:
			wait.Reset() // it has worked since the last probe
		default:
			r.restore(ctx)
		}
	}
	return nil
}

// restore lets reads go to the replica again.
func (r *Reader) restore(ctx context.Context) {
	select {
	case <-r.failed: // drop an old signal
	default:
	}
	r.mu.Lock()
	r.lastErr = nil
	r.mu.Unlock()
	r.up.Store(true)
	r.cfg.Logger.InfoContext(ctx, "postgres replica answers, reads go to it")
}

// selectLag reads the lag of a standby. A process that runs projections renews its leases every
// other second, so the primary is never idle for longer.
const selectLag = `select pg_is_in_recovery(),
	greatest(0, coalesce(extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp()), 0))::float8`

// probe connects to the replica and reads its lag.
func (r *Reader) probe(ctx context.Context) error {
	var (
		recovering bool
		seconds    float64
	)
	err := r.pool.QueryRow(ctx, selectLag).Scan(&recovering, &seconds)
	if err == nil && !recovering {
		err = pgconn.ErrPrimaryConnection
	}
	if err != nil {
		r.pool.Reset()
		return err
	}
	r.lag.Store(int64(seconds * float64(time.Second)))
	return nil
}

// Stat returns the state of the pool of connections.
func (r *Reader) Stat() *pgxpool.Stat { return r.pool.Stat() }

var (
	upMetric = prometheus.NewDesc("annals_postgres_replica_up",
		"1 while reads go to the replica of Postgres, 0 while it is left alone since it failed.", nil, nil)
	lagMetric = prometheus.NewDesc("annals_postgres_replica_lag_seconds",
		"Age of the newest transaction that the replica of Postgres has replayed, as last read.", nil, nil)
)

// Describe implements prometheus.Collector.
func (r *Reader) Describe(out chan<- *prometheus.Desc) {
	out <- upMetric
	out <- lagMetric
	r.reads.Describe(out)
}

// Collect implements prometheus.Collector.
func (r *Reader) Collect(out chan<- prometheus.Metric) {
	up := 0.0
	if r.up.Load() {
		up = 1
	}
	out <- prometheus.MustNewConstMetric(upMetric, prometheus.GaugeValue, up)
	out <- prometheus.MustNewConstMetric(lagMetric, prometheus.GaugeValue, time.Duration(r.lag.Load()).Seconds())
	r.reads.Collect(out)
}
