package recall_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/load"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

// BenchmarkRecall recalls among 100,000 data points of some 210 characters: as asked by default, and within a window of a third of
// their time as of then.
func BenchmarkRecall(b *testing.B) {
	const points = 100_000
	h := recalltest.New(b, nil)
	texts, start := load.NewTexts(10_000), time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range points {
		h.Send(recalltest.Point{ID: fmt.Sprint(n), Content: texts.Text(35), OccurredAt: start.Add(time.Duration(n) * 15 * time.Minute)})
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
			before, results := cpu(b), 0
			for b.Loop() {
				var q recall.Query = h.Ask(questions.Query())
				if window {
					q.From, q.At = &from, &to
				}
				results += len(h.Recall(q).Results)
			}
			b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
			if results == 0 {
				b.Fatal("nothing was found, so nothing was measured")
			}
		})
	}
}

// cpu is the processor time of this process; that of Postgres is not in it.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
