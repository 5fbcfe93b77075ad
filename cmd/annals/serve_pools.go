package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/projections/usage"
)

var (
	connectionsMetric = prometheus.NewDesc("annals_postgres_connections",
		"Connections to Postgres of calls and of background work, in use and idle.", []string{"pool", "state"}, nil)
	mostConnectionsMetric = prometheus.NewDesc("annals_postgres_connections_max",
		"The most connections that a pool opens.", []string{"pool"}, nil)
	chargeMetric = prometheus.NewDesc("annals_metering_oldest_seconds",
		"Age of the oldest counted recalls that are not in the log, at most about 15 minutes. 0 for none.", nil, nil)
	stuckMetric = prometheus.NewDesc("annals_deletions_stuck",
		"Committed deletions that cannot be completed: what they delete is still served.", nil, nil)
	waitsMetric = prometheus.NewDesc("annals_postgres_connection_waits_total",
		"How often a caller waited for a connection, since all were in use or none was open.", []string{"pool"}, nil)
)

// workMetrics reports the state of the background work and the use of each connection pool.
type workMetrics struct{ p *process }

// Describe implements prometheus.Collector.
func (m workMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- connectionsMetric
	out <- mostConnectionsMetric
	out <- waitsMetric
	out <- chargeMetric
	out <- stuckMetric
}

// Collect implements prometheus.Collector.
func (m workMetrics) Collect(out chan<- prometheus.Metric) {
	for name, pool := range map[string]*pgxpool.Pool{"calls": m.p.st.db, "work": m.p.st.work} {
		s := pool.Stat()
		gauge := func(of *prometheus.Desc, value int32, labels ...string) {
			labels = append([]string{name}, labels...)
			out <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, float64(value), labels...)
		}
		gauge(connectionsMetric, s.AcquiredConns(), "in-use")
		gauge(connectionsMetric, s.IdleConns(), "idle")
		gauge(mostConnectionsMetric, s.MaxConns())
		out <- prometheus.MustNewConstMetric(waitsMetric, prometheus.CounterValue, float64(s.EmptyAcquireCount()), name)
	}
	out <- prometheus.MustNewConstMetric(stuckMetric, prometheus.GaugeValue, float64(len(m.p.finisher.Stuck())))
	ctx, cancel := context.WithTimeout(context.Background(), checkLimit)
	defer cancel()
	age, _, err := usage.Queries{DB: m.p.st.work}.Oldest(ctx)
	if err != nil {
		// This is usual before the first start of the projection.
		m.p.log.DebugContext(ctx, "the age of counted recalls is not known", "err", err)
		return
	}
	out <- prometheus.MustNewConstMetric(chargeMetric, prometheus.GaugeValue, age.Seconds())
}
