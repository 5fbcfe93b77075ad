package bleve

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// BenchmarkApply measures a passage that is written in pages of some sizes, merges included.
func BenchmarkApply(b *testing.B) {
	const passages = 20_000
	texts, analyzer := load.NewTexts(10_000), recall.NewAnalyzer()
	documents := make([]recallindex.Document, passages)
	for i := range documents {
		documents[i] = recallindex.Document{
			Key: recallindex.Key{Revision: 1}, OccurredAt: benchStart.Add(time.Duration(i) * time.Minute),
			Terms: recall.Terms{Text: analyzer.Terms(texts.Text(35))},
		}
		binary.BigEndian.PutUint64(documents[i].DataPoint[:], uint64(i)+1)
	}
	for _, page := range []int{50, 500, 4000} {
		b.Run(fmt.Sprintf("page=%d", page), func(b *testing.B) {
			before := processorTime(b)
			for b.Loop() {
				x, err := Open(b.TempDir(), Options{})
				if err != nil {
					b.Fatal(err)
				}
				for from := 0; from < passages; from += page {
					change := recallindex.Change{
						Analysis: indextest.Analysis, Project: uuid.UUID{1}, Upserts: documents[from:min(from+page, passages)],
					}
					if err := x.Apply(b.Context(), []recallindex.Change{change}); err != nil {
						b.Fatal(err)
					}
				}
				if err := x.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(passages*b.N), "cpu-µs/passage")
		})
	}
}

// BenchmarkDelete measures a data point that is deleted in pages of 500, from a shared slot.
func BenchmarkDelete(b *testing.B) {
	const points, page = 10_000, 500
	texts, analyzer, project := load.NewTexts(10_000), recall.NewAnalyzer(), uuid.UUID{1}
	x, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	deleted := 0
	for b.Loop() {
		b.StopTimer()
		ids := make([]uuid.UUID, points)
		for from := 0; from < points; from += page {
			change := recallindex.Change{Analysis: indextest.Analysis, Project: project}
			for i := range page {
				ids[from+i] = uuid.New()
				change.Upserts = append(change.Upserts, recallindex.Document{
					Key: recallindex.Key{DataPoint: ids[from+i], Revision: 1}, OccurredAt: benchStart,
					Terms: recall.Terms{Text: analyzer.Terms(texts.Text(35))},
				})
			}
			if err := x.Apply(b.Context(), []recallindex.Change{change}); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		for from := 0; from < points; from += page {
			change := recallindex.Change{Analysis: indextest.Analysis, Project: project}
			for _, id := range ids[from : from+page] {
				change.Deletes = append(change.Deletes, recallindex.Scope{DataPoint: id, Part: recallindex.Sources, Revision: 1},
					recallindex.Scope{DataPoint: id, Part: recallindex.Memories, Revision: 1})
			}
			if err := x.Apply(b.Context(), []recallindex.Change{change}); err != nil {
				b.Fatal(err)
			}
		}
		deleted += points
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(deleted), "µs/deletion")
	if n, err := x.Count(b.Context(), project); n != 0 || err != nil {
		b.Fatalf("%d documents are left, %v", n, err)
	}
	if err := x.Close(); err != nil {
		b.Fatal(err)
	}
}
