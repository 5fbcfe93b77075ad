package bench

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// benchPassages is how many passages the engine is asked among.
const benchPassages = 100_000

// BenchmarkEngineQuery is the index alone on the texts and questions of "annals-bench load": what a
// recall adds to it is the ratio that the bench shows.
func BenchmarkEngineQuery(b *testing.B) {
	index, err := bleve.Open(b.TempDir(), bleve.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := index.Close(); err != nil {
			b.Error(err)
		}
	})
	project, analyzer, texts := uuid.UUID{1}, recall.NewAnalyzer(), load.NewTexts(10_000)
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for from := 0; from < benchPassages; from += 1000 {
		change := recallindex.Change{Analysis: indextest.Analysis, Project: project}
		for i := from; i < from+1000; i++ {
			key := recallindex.Key{Revision: 1}
			binary.BigEndian.PutUint64(key.DataPoint[:], uint64(i)+1)
			for n, terms := range analyzer.Passages(recall.Document{Content: texts.Text(passageWords)}) {
				key.N = n
				change.Upserts = append(change.Upserts,
					recallindex.Document{Key: key, OccurredAt: start.Add(time.Duration(i) * time.Minute), Terms: terms})
			}
		}
		if err := index.Apply(b.Context(), []recallindex.Change{change}); err != nil {
			b.Fatal(err)
		}
	}
	from, to := load.Window(benchPassages)
	questions := load.NewTexts(7)
	hits := 0
	for b.Loop() {
		found, err := index.Search(b.Context(), recallindex.Query{
			Analysis: indextest.Analysis,
			Project:  project, Sources: 300, Terms: analyzer.Query(questions.Query()),
			Audiences: []uuid.UUID{uuid.Nil}, From: &from, To: &to,
		})
		if err != nil {
			b.Fatal(err)
		}
		hits += len(found.Sources.Hits)
	}
	if hits == 0 {
		b.Fatal("nothing was found, so nothing was measured")
	}
}
