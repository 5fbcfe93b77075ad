package browser

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/scrapetest"
	"github.com/annals-project/annals/internal/webtest"
)

// What a page may cost, and how many people open one every so often.
const (
	people   = 20
	every    = 5 * time.Second
	mostTime = 150.0 // ms, the 95th percentile
	mostWork = 15.0  // ms of processor time
)

// The sizes of the store; ANNALS_BENCH_CALLS sets another number of calls, and the others in proportion.
const (
	benchPoints     = 100_000
	benchIdentities = 100_000
	benchCalls      = 1_000_000
)

// BenchmarkPages opens each page of the console as 20 people do who open one every 5 s, over a store with 100,000 data
// points, 100,000 identities and a million calls. It reports the slowest page and the most expensive one, and fails for
// each that misses a bound.
func BenchmarkPages(b *testing.B) {
	url := pgtest.URL(b)
	s := start(b, "ANNALS_POSTGRES="+url, "ANNALS_RATE_LIMIT_PER_MINUTE=0")
	s.fill(b, url)
	r := webtest.NewReader(b, s.Console)
	s.signIn(r)
	files := filesOfPages(b, r)
	idle := s.work(b)
	await(every)
	perSecond := (s.work(b) - idle) / every.Seconds()
	for b.Loop() {
		var slowest, dearest, heaviest float64
		for _, page := range benchPages {
			before := s.work(b)
			times, size := opened(b, r, page)
			size += files
			spent := 1000 * max(0, s.work(b)-before-perSecond*every.Seconds()) / float64(people)
			late := times.Percentile(0.95)
			b.Logf("%-50s p50 %6.1f ms, p95 %6.1f ms, %5.1f ms of processor time, %6d bytes",
				page, times.Percentile(0.5), late, spent, size)
			if late >= mostTime || spent > mostWork || size > mostBytes {
				b.Errorf("%s misses a bound: p95 %.1f ms, %.1f ms of processor time, %d bytes", page, late, spent, size)
			}
			slowest, dearest, heaviest = max(slowest, late), max(dearest, spent), max(heaviest, float64(size))
		}
		b.ReportMetric(slowest, "p95-ms")
		b.ReportMetric(dearest, "processor-ms/page")
		b.ReportMetric(heaviest, "bytes/page")
	}
}

// benchPages are the pages to open.
var benchPages = []string{
	"/", "/usage", "/health", "/account", "/settings/organization", "/settings/members", "/settings/history", "/p/default",
	"/p/default/data", "/p/default/data?author=load", "/p/default/identities", "/p/default/identities/member-7",
	"/p/default/identities?trait=team&value=team-7", "/p/default/audiences", "/p/default/requests",
	"/p/default/requests?statusClass=4xx", "/p/default/webhooks", "/p/default/failed", "/p/default/recall",
	"/p/default/ingest", "/p/default/keys", "/p/default/caps", "/docs", "/docs/limits", "/docs/search?q=who+reads+a+text",
}

// await waits for a time that is measured.
func await(d time.Duration) { <-time.After(d) }

// work is the processor time that the service has used, in seconds, without its database.
func (s *service) work(b *testing.B) float64 {
	b.Helper()
	used, err := scrapetest.Metric(b.Context(), s.API, "process_cpu_seconds_total")
	runtest.Must(b, err)
	return used
}

// opened opens a page for each of the people, at even distances, and returns how long the answers took and how many
// bytes the page transfers.
func opened(b *testing.B, r *webtest.Reader, page string) (times load.Times, size int) {
	b.Helper()
	times = make(load.Times, people)
	sizes := make([]int, people)
	var group sync.WaitGroup
	tick := time.NewTicker(every / people)
	defer tick.Stop()
	for n := range people {
		group.Go(func() {
			began := time.Now()
			sizes[n] = transfer(b, r, page)
			times[n] = time.Since(began)
		})
		<-tick.C
	}
	group.Wait()
	return times, slices.Max(sizes)
}

// fill fills the store.
func (s *service) fill(b *testing.B, url string) {
	b.Helper()
	calls := benchCalls
	if text := os.Getenv("ANNALS_BENCH_CALLS"); text != "" {
		n, err := strconv.Atoi(text)
		runtest.Must(b, err)
		calls = n
	}
	share := float64(calls) / benchCalls
	began := time.Now()
	c := s.client("ANNALS_PROJECT_KEY")
	_, err := load.Identities(b.Context(), c, int(share*benchIdentities))
	runtest.Must(b, err)
	_, last, err := load.Batches(b.Context(), c, max(1, int(share*benchPoints/1000)), 1000, 30, 2, "pages")
	runtest.Must(b, err)
	db, err := pgxpool.New(b.Context(), url)
	runtest.Must(b, err)
	defer db.Close()
	s.fillLog(b, db, calls)
	_, err = c.WaitSettled(b.Context(), last.IngestionID, nil)
	runtest.Must(b, err)
	runtest.Await(b, "all sends have ended", func() bool {
		status, err := c.GetIngestion(b.Context(), last.IngestionID)
		runtest.Must(b, err)
		return status.Readiness.Raw == 0 && status.Readiness.Comprehension == 0
	})
	_, err = db.Exec(b.Context(), "analyze")
	runtest.Must(b, err)
	b.Logf("filled in %s", time.Since(began).Round(time.Second))
}

// fillLog writes calls evenly over 31 days.
func (s *service) fillLog(b *testing.B, db *pgxpool.Pool, calls int) {
	b.Helper()
	var project uuid.UUID
	runtest.Must(b, db.QueryRow(b.Context(), "select id from access.projects order by number limit 1").Scan(&project))
	w := requestlog.NewWriter(db, metering.DefaultPlanTerms(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	rnd := rand.New(rand.NewPCG(1, 2))
	endpoints := []string{"POST /api/v1/ingest", "POST /api/v1/ingest", "POST /api/v1/recall", "GET /api/v1/usage"}
	statuses := []int{200, 200, 202, 202, 202, 400, 404, 503}
	step := requestlog.MaxRange / time.Duration(calls)
	from := time.Now().UTC().Add(-requestlog.MaxRange).Truncate(time.Microsecond)
	const chunk = 50_000
	for n := range calls {
		// The last call of a chunk holds room until it is written.
		var hold *allowance.Hold
		if n%chunk == chunk-1 || n == calls-1 {
			var err error
			hold, err = w.Open(ctx, allowance.Owner{Organization: project})
			runtest.Must(b, err)
		}
		endpoint := endpoints[rnd.IntN(len(endpoints))]
		at := from.Add(time.Duration(n) * step)
		w.Add(requestlog.Record{
			RequestID: idAt(at), Project: project, ReceivedAt: at, Endpoint: endpoint, Path: endpoint[5:],
			Status: statuses[rnd.IntN(len(statuses))], Duration: time.Duration(rnd.IntN(50_000)) * time.Microsecond,
			Key:      requestlog.Key{Name: fmt.Sprintf("key %d", rnd.IntN(20)), Prefix: "svc_sk_ab12"},
			Identity: fmt.Sprintf("member-%d", rnd.IntN(1000)), Plan: string(metering.SelfHosted),
			RequestBytes: 15, ResponseBytes: 2, IDs: []uuid.UUID{uuid.New()}, Hold: hold,
		})
		if hold != nil {
			runtest.Await(b, "the calls are written", func() bool { return hold.Held() == 0 })
		}
	}
	cancel()
	runtest.Must(b, <-done)
}

// idAt returns an id of a call at a time.
func idAt(at time.Time) uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	for i := range 6 {
		id[i] = byte(at.UnixMilli() >> (8 * (5 - i)))
	}
	return id
}
