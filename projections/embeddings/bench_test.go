package embeddings

import (
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/memory"
)

// BenchmarkNearest compares the vectors of a project of 100,000 data points.
func BenchmarkNearest(b *testing.B) {
	const points, dims = 100_000, 384
	random := rand.New(rand.NewPCG(1, 2))
	vector := func() (scale float32, code []byte) {
		v := make([]float32, dims)
		for i := range v {
			v[i] = float32(random.NormFloat64())
		}
		scale, code, _ = memory.Quantize(v)
		return scale, code
	}
	col := new(column)
	var changes []change
	for n := range points {
		scale, code := vector()
		changes = append(changes, change{
			entry: entry{id: uuid.New(), revision: 1, spoken: true, at: int64(n) * int64(time.Minute/time.Microsecond)},
			dims:  dims, packed: pack(&memory.Embedded{Dims: dims, Vectors: []memory.Vector{{Scale: scale, Code: code}}}),
		})
	}
	random.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	col.apply(changes, nil)
	col.tidy()
	scale, code := vector()
	b.ReportAllocs()
	for b.Loop() {
		q := Query{Audiences: []uuid.UUID{uuid.Nil}, Size: 200}
		hits, err := newSearch(col, q, scale, code).run(b.Context(), slog.New(slog.DiscardHandler))
		if err != nil || len(hits) != 200 {
			b.Fatal("not all are compared")
		}
	}
}
