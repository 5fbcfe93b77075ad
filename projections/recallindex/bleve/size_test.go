package bleve

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// BenchmarkSize fills one project with as many passages as ANNALS_BENCH_PASSAGES states, opens the
// index again, and searches it with three filters. Without the variable it is skipped: a million
// take some minutes.
func BenchmarkSize(b *testing.B) {
	passages, err := strconv.Atoi(os.Getenv("ANNALS_BENCH_PASSAGES"))
	if err != nil {
		b.Skip("ANNALS_BENCH_PASSAGES is not set")
	}
	folder, project, analyzer := b.TempDir(), uuid.UUID{1}, recall.NewAnalyzer()
	x, err := Open(folder, Options{})
	if err != nil {
		b.Fatal(err)
	}
	began, spent := time.Now(), processorTime(b)
	const page = 2000
	for from := 0; from < passages; from += page {
		texts, change := load.NewTexts(uint64(from)+10_000), recallindex.Change{
			Analysis: indextest.Analysis, Project: project,
		}
		for i := from; i < min(from+page, passages); i++ {
			d := recallindex.Document{
				Key: recallindex.Key{Revision: 1}, OccurredAt: benchStart.Add(time.Duration(i) * time.Minute),
				Terms: recall.Terms{Text: analyzer.Terms(texts.Text(40))},
			}
			binary.BigEndian.PutUint64(d.DataPoint[:], uint64(i)+1)
			change.Upserts = append(change.Upserts, d)
		}
		if err := x.Apply(b.Context(), []recallindex.Change{change}); err != nil {
			b.Fatal(err)
		}
	}
	b.Logf("filled in %s, %d µs of processor time each", time.Since(began).Round(time.Second),
		(processorTime(b)-spent).Microseconds()/int64(passages))
	b.Logf("after filling: %s", resident())
	if err := x.Close(); err != nil {
		b.Fatal(err)
	}
	size := sizeOf(b, folder)
	began = time.Now()
	if x, err = Open(folder, Options{}); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := x.Close(); err != nil {
			b.Error(err)
		}
	}()
	if n, err := x.Count(b.Context(), project); err != nil || n != passages {
		b.Fatalf("%d documents, %v", n, err)
	}
	b.Logf("%d MiB on disk, opened in %s", size>>20, time.Since(began))
	minutes := time.Duration(passages) * time.Minute
	from, to := benchStart.Add(minutes/4), benchStart.Add(3*minutes/4)
	ask := func(terms []recall.Term) time.Duration {
		began := time.Now()
		if _, err := x.Search(b.Context(), recallindex.Query{
			Analysis: indextest.Analysis,
			Project:  project, Sources: 300, Terms: terms, Audiences: []uuid.UUID{uuid.Nil}, From: &from, To: &to,
		}); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	questions := load.NewTexts(7)
	b.Logf("the first search takes %s", ask(analyzer.Query(questions.Query())))
	var times []time.Duration
	b.Run("search", func(b *testing.B) {
		defer reportCPU(b)()
		for b.Loop() {
			times = append(times, ask(analyzer.Query(questions.Query())))
		}
	})
	slices.Sort(times)
	b.Logf("p50 %s, p99 %s", times[len(times)/2], times[len(times)*99/100])
	b.Logf("after searching: %s", resident())
}

// sizeOf returns the bytes of all files under a folder.
func sizeOf(b *testing.B, folder string) (size int64) {
	b.Helper()
	err := filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		size += info.Size()
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return size
}

// resident is the memory of this process, with mapped files.
func resident() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "memory is unknown"
	}
	var found []string
	for line := range strings.Lines(string(status)) {
		if name, value, _ := strings.Cut(line, ":"); strings.HasPrefix(name, "Rss") || name == "VmHWM" {
			found = append(found, fmt.Sprintf("%s %s", name, strings.TrimSpace(value)))
		}
	}
	return strings.Join(found, ", ")
}
