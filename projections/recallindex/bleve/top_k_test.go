package bleve

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// Words of the benchmark: a text has a common one with a chance of 8 to 30 of 100, a middling one of .8 to 2, and a
// rare one of some in 100,000.
const commonWords, middlingWords, rareWords = 20, 50, 500

func benchText(r *rand.Rand) (words []string) {
	for i := range commonWords {
		if r.IntN(1000) < 80+220*i/commonWords {
			words = append(words, fmt.Sprint("common", i))
			if r.IntN(8) == 0 {
				words = append(words, fmt.Sprint("common", i))
			}
		}
	}
	for i := range middlingWords {
		if r.IntN(1000) < 8+12*i/middlingWords {
			words = append(words, fmt.Sprint("middling", i))
		}
	}
	if r.IntN(10) == 0 {
		words = append(words, fmt.Sprint("rare", r.IntN(rareWords)))
	}
	for range 5 + r.IntN(60) {
		words = append(words, fmt.Sprint("other", r.IntN(20_000)))
	}
	return words
}

// BenchmarkTopK searches ANNALS_BENCH_PASSAGES passages for one to ten words of each kind. ANNALS_BENCH_INDEX is a
// folder in which the index is kept for the next time. Without them it is skipped.
func BenchmarkTopK(b *testing.B) {
	passages, err := strconv.Atoi(os.Getenv("ANNALS_BENCH_PASSAGES"))
	folder := os.Getenv("ANNALS_BENCH_INDEX")
	if err != nil || folder == "" {
		b.Skip("ANNALS_BENCH_PASSAGES or ANNALS_BENCH_INDEX is not set")
	}
	x, err := Open(filepath.Join(folder, strconv.Itoa(passages)), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := x.Close(); err != nil {
			b.Error(err)
		}
	}()
	project := uuid.UUID{1}
	if n, err := x.Count(b.Context(), project); err != nil || n != 0 && n != passages {
		b.Fatalf("%d documents, %v", n, err)
	} else if n == 0 {
		r := rand.New(rand.NewPCG(1, 2))
		for from := 0; from < passages; from += 2000 {
			change := recallindex.Change{Analysis: indextest.Analysis, Project: project}
			for i := from; i < min(from+2000, passages); i++ {
				d := recallindex.Document{
					Key: recallindex.Key{Revision: 1}, Audience: uuid.UUID{15: byte(i*7%10 + 1)},
					OccurredAt: benchStart.Add(time.Duration(i) * time.Minute), Terms: recall.Terms{Text: benchText(r)},
				}
				binary.BigEndian.PutUint64(d.DataPoint[:], uint64(i)+1)
				change.Upserts = append(change.Upserts, d)
			}
			if err := x.Apply(b.Context(), []recallindex.Change{change}); err != nil {
				b.Fatal(err)
			}
		}
	}
	audiences := make([]uuid.UUID, 10)
	for i := range audiences {
		audiences[i] = uuid.UUID{15: byte(i + 1)}
	}
	for _, kind := range []string{"rare", "middling", "common", "mixed"} {
		for _, words := range []int{1, 2, 6, 10} {
			for _, size := range []int{10, 100, 300} {
				for _, reached := range []int{10, 1} {
					q := recallindex.Query{
						Analysis: indextest.Analysis, Project: project, Sources: size, Audiences: audiences[:reached],
					}
					b.Run(fmt.Sprintf("%s-%d/top-%d/audiences-%d", kind, words, size, reached), func(b *testing.B) {
						r := rand.New(rand.NewPCG(5, uint64(words)))
						defer reportCPU(b)()
						for b.Loop() {
							q.Terms = recall.Wholes(benchWords(r, kind, words)...)
							if _, err := x.Search(b.Context(), q); err != nil {
								b.Fatal(err)
							}
						}
					})
				}
			}
		}
	}
}

// benchWords returns different words of a kind.
func benchWords(r *rand.Rand, kind string, n int) (words []string) {
	first := map[string]int{"common": r.IntN(commonWords), "middling": r.IntN(middlingWords), "rare": r.IntN(rareWords)}
	for i := range n {
		of := kind
		if kind == "mixed" {
			of = []string{"common", "rare", "middling"}[i%3]
		}
		bound := map[string]int{"common": commonWords, "middling": middlingWords, "rare": rareWords}[of]
		words = append(words, fmt.Sprint(of, (first[of]+i)%bound))
	}
	return words
}
