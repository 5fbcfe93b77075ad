package replica

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/eventstore/backoff"
)

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
