package main

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

var (
	connectionsMetric = prometheus.NewDesc("annals_postgres_connections",
		"Connections to Postgres of calls and of the work behind them, in use and idle.", []string{"pool", "state"}, nil)
	mostConnectionsMetric = prometheus.NewDesc("annals_postgres_connections_max", "The most connections that a pool opens.", []string{"pool"}, nil)
	waitsMetric           = prometheus.NewDesc("annals_postgres_connection_waits_total",
		"How often a connection was waited for since all were in use, or none was open.", []string{"pool"}, nil)
)

// poolMetrics tells how much of each pool of connections is in use.
type poolMetrics struct{ st *storage }

// Describe implements prometheus.Collector.
func (m poolMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- connectionsMetric
	out <- mostConnectionsMetric
	out <- waitsMetric
}

// Collect implements prometheus.Collector.
func (m poolMetrics) Collect(out chan<- prometheus.Metric) {
	for name, pool := range map[string]*pgxpool.Pool{"calls": m.st.db, "work": m.st.work} {
		s := pool.Stat()
		gauge := func(of *prometheus.Desc, value int32, labels ...string) {
			out <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, float64(value), append([]string{name}, labels...)...)
		}
		gauge(connectionsMetric, s.AcquiredConns(), "in-use")
		gauge(connectionsMetric, s.IdleConns(), "idle")
		gauge(mostConnectionsMetric, s.MaxConns())
		out <- prometheus.MustNewConstMetric(waitsMetric, prometheus.CounterValue, float64(s.EmptyAcquireCount()), name)
	}
}
