package server

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

// Callers at once, and how long each load of a round lasts.
const (
	logBenchCallers = 16
	logBenchLasts   = 4 * time.Second
)

// BenchmarkRequestLog measures the throughput of ingest and of recall of a service that logs its calls
// as a ratio to one that does not. Both run in this process, each on a data folder and a database of
// its own, and take turns, so that what else happens on the machine meets both. An iteration is one
// turn of each; the ratios are medians over all iterations.
func BenchmarkRequestLog(b *testing.B) {
	logged, unlogged := newLogBench(b, false), newLogBench(b, true)
	var ingest, recall, ingestRates, recallRates []float64
	for n := 0; b.Loop(); n++ {
		turns := []*logBench{logged, unlogged}
		if n%2 == 1 {
			slices.Reverse(turns)
		}
		for _, s := range turns {
			s.sends = s.single(b, n)
		}
		for _, s := range turns {
			s.recalls = s.recallFor(b, logBenchLasts)
		}
		ingest, ingestRates = append(ingest, logged.sends/unlogged.sends), append(ingestRates, logged.sends)
		recall, recallRates = append(recall, logged.recalls/unlogged.recalls), append(recallRates, logged.recalls)
	}
	for unit, values := range map[string][]float64{
		"ingest-ratio": ingest, "recall-ratio": recall, "sends/s": ingestRates, "recalls/s": recallRates,
	} {
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], unit)
	}
}

// logBench is one of the two services.
type logBench struct {
	*client.Client
	// sends and recalls are calls a second of the last turn.
	sends, recalls float64
}

func newLogBench(b *testing.B, unlogged bool) *logBench {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "data")
	ready, done := make(chan auth.URLs, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	s, err := New(ctx, Config{
		Data: datafolder.Folder{Dir: dir}, APIAddr: "127.0.0.1:0", ConsoleAddr: "127.0.0.1:0", EventStore: Embedded,
		Postgres: pgtest.URL(b), Derive: true, PlanTerms: metering.DefaultPlanTerms(), RateLimit: new(int),
		NoRequestLog: unlogged, Logger: runtest.Warnings(b), Ready: func(urls auth.URLs) { ready <- urls },
	})
	if err != nil {
		b.Fatal(err)
	}
	go func() { done <- s.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	var urls auth.URLs
	select {
	case urls = <-ready:
	case <-time.After(runtest.Timeout):
		b.Fatalf("the service is not ready after %s", runtest.Timeout)
	}
	keys, err := datafolder.ReadCredentials(dir)
	if err != nil {
		b.Fatal(err)
	}
	c, err := client.New(urls.API, keys[datafolder.ProjectKeyName])
	if err != nil {
		b.Fatal(err)
	}
	return &logBench{Client: c}
}

// single sends for a while and waits until all of it is derived.
func (s *logBench) single(b *testing.B, round int) (perSecond float64) {
	b.Helper()
	rate, err := load.Single(b.Context(), s.Client, logBenchCallers, logBenchLasts, fmt.Sprint("round ", round))
	if err != nil {
		b.Fatal(err)
	}
	last, err := s.Ingest(b.Context(), client.DataPoint{ID: fmt.Sprint("last of ", round), Content: "The end."})
	if err == nil {
		_, err = s.WaitSettled(b.Context(), last.IngestionID, nil)
	}
	if err != nil {
		b.Fatal(err)
	}
	return rate.PerSecond
}

func (s *logBench) recallFor(b *testing.B, lasts time.Duration) (perSecond float64) {
	b.Helper()
	var answered atomic.Int64
	group, ctx := errgroup.WithContext(b.Context())
	began := time.Now()
	for c := range logBenchCallers {
		group.Go(func() error {
			texts := load.NewTexts(uint64(c) + 1)
			for time.Since(began) < lasts {
				page, err := s.Recall(ctx, client.RecallRequest{Query: texts.Query(), Identity: "load", Limit: 10})
				if err != nil {
					return fmt.Errorf("recall: %w", err)
				}
				if len(page.Results) > 0 {
					answered.Add(1)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	if answered.Load() == 0 {
		b.Fatal("no recall found anything: nothing was measured")
	}
	return float64(answered.Load()) / time.Since(began).Seconds()
}
