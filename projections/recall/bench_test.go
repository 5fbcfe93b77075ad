package recall_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

// BenchmarkRecall recalls among 100,000 data points of about 210 characters: with the default
// query, and within a window of a third of their time at a perspective.
func BenchmarkRecall(b *testing.B) {
	const dataPoints = 100_000
	h := recalltest.New(b, nil)
	texts, start := load.NewTexts(10_000), time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range dataPoints {
		h.Send(recalltest.DataPoint{
			ID: fmt.Sprint(n), Content: texts.Text(35),
			OccurredAt: start.Add(time.Duration(n) * 15 * time.Minute),
		})
	}
	h.CatchUp()
	if _, err := h.DB.Exec(b.Context(), "analyze"); err != nil {
		b.Fatal(err)
	}
	questions := load.NewTexts(7)
	from, to := start.AddDate(1, 0, 0), start.AddDate(2, 0, 0)
	for _, window := range []bool{false, true} {
		name := "default"
		if window {
			name = "window"
		}
		b.Run(name, func(b *testing.B) {
			before, backends, results := cpu(b), backendCPU(b, h.DB), 0
			for b.Loop() {
				var q recall.Query = h.Ask(questions.Query())
				if window {
					q.From, q.At = &from, &to
				}
				results += len(h.Recall(q).Results)
			}
			b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64((backendCPU(b, h.DB)-backends).Microseconds())/float64(b.N), "postgres-µs/op")
			if results == 0 {
				b.Fatal("nothing was found, so nothing was measured")
			}
		})
	}
}

// backendCPU is the processor time of the Postgres processes that serve the pool. The kernel counts
// it in hundredths of a second.
func backendCPU(b *testing.B, db *pgxpool.Pool) time.Duration {
	rows, err := db.Query(b.Context(), "select pid from pg_stat_activity where datname = current_database()")
	if err != nil {
		b.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		b.Fatal(err)
	}
	ticks := 0
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			b.Skipf("no account of processor time: %v", err)
		}
		// The name in parentheses may contain spaces; user and system time are the twelfth and thirteenth
		// field after it.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, field := range fields[11:13] {
			n, err := strconv.Atoi(field)
			if err != nil {
				b.Fatal(err)
			}
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// cpu is the processor time of this process, without that of Postgres.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
