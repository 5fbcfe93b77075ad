package requestlog

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
)

// stored is how many calls the log of the benchmark holds; ANNALS_BENCH_CALLS sets another number.
const stored = 1_000_000

// BenchmarkLog measures reads of a log with a million calls of one project in 31 days: a page, its
// total count and a histogram under each filter. It reports the 99th percentile of each, in
// milliseconds, and how many calls a second were written.
func BenchmarkLog(b *testing.B) {
	calls := stored
	if text := os.Getenv("ANNALS_BENCH_CALLS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			b.Fatal(err)
		}
		calls = n
	}
	h := newHarness(b)
	project, point := uuid.New(), uuid.New()
	to := time.Now().UTC().Truncate(time.Microsecond)
	began := time.Now()
	some := h.fill(b, project, point, to, calls)
	b.Logf("%d calls written, %.0f a second", calls, float64(calls)/time.Since(began).Seconds())
	if _, err := h.db.Exec(b.Context(), "analyze"); err != nil {
		b.Fatal(err)
	}
	for name, q := range map[string]Query{
		"all":          {},
		"status":       {Statuses: []int{404, 503}},
		"rare status":  {Statuses: []int{413}},
		"status class": {Classes: []int{4, 5}},
		"endpoint":     {Endpoints: []string{"POST /api/v1/recall"}},
		"key name":     {KeyNames: []string{"key 7"}},
		"every filter": {Classes: []int{2}, Endpoints: []string{"POST /api/v1/recall"}, KeyNames: []string{"key 7"}},
		"request id":   {Search: some.String()},
		"part of name": {Search: "Y 1"},
		"data point":   {Search: "some data point", SearchPoint: point},
		"nothing":      {Search: "nothing has this name", SearchPoint: uuid.New()},
	} {
		q.From, q.To, q.First = to.Add(-MaxRange), to, 100
		b.Run(name, func(b *testing.B) {
			var list, histogram []time.Duration
			for b.Loop() {
				began := time.Now()
				page, err := h.List(b.Context(), project, q)
				if err != nil || (page.TotalCount == 0) != (name == "nothing") {
					b.Fatalf("%d calls, %v", page.TotalCount, err)
				}
				list = append(list, time.Since(began))
				began = time.Now()
				if _, err := h.Histogram(b.Context(), project, q); err != nil {
					b.Fatal(err)
				}
				histogram = append(histogram, time.Since(began))
			}
			b.ReportMetric(p99(list), "list-p99-ms")
			b.ReportMetric(p99(histogram), "histogram-p99-ms")
		})
	}
}

// fill writes calls evenly over 31 days and returns the id of one of them.
func (h *harness) fill(b *testing.B, project, point uuid.UUID, to time.Time, calls int) (some uuid.UUID) {
	b.Helper()
	rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a reproducible benchmark
	endpoints := []string{"POST /api/v1/ingest", "POST /api/v1/ingest", "POST /api/v1/recall", "GET /api/v1/usage"}
	step := MaxRange / time.Duration(calls)
	batch := make([]Record, 0, batchRows)
	for n := range calls {
		r := recordAt(project, to.Add(-MaxRange+time.Duration(n)*step).Truncate(time.Microsecond))
		r.Payload, r.Endpoint, r.Status = nil, pick(rnd, endpoints...), pick(rnd, 200, 200, 202, 202, 202, 400, 404, 503)
		if n%50_000 == 0 {
			r.Status = 413
		}
		r.Key.Name, r.IDs = fmt.Sprintf("key %d", rnd.IntN(20)), []uuid.UUID{uuid.New()}
		if n%10_000 == 0 {
			r.IDs = append(r.IDs, point)
		}
		some = r.RequestID
		if batch = append(batch, r); len(batch) == batchRows || n == calls-1 {
			h.add(b, batch...)
			batch = batch[:0]
		}
	}
	return some
}

func p99(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[(len(times)*99)/100].Microseconds()) / 1000
}
