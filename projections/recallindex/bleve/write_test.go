package bleve

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/load"
	"github.com/annals-project/annals/projections/recallindex"
)

// BenchmarkApply is what a passage costs that is written in pages of so many, merges included.
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
					if err := x.Apply(b.Context(), uuid.UUID{1}, recallindex.Change{Upserts: documents[from:min(from+page, passages)]}); err != nil {
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
