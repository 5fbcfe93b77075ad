package embeddings

import (
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/memory"
)

// BenchmarkNearest compares the vectors of a project of 100,000 data points.
func BenchmarkNearest(b *testing.B) {
	const points, dims = 100_000, 1024
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
	for range points {
		scale, code := vector()
		col.put(entry{id: uuid.New(), revision: 1}, dims,
			pack(&memory.Embedded{Dims: dims, Vectors: []memory.Vector{{Scale: scale, Code: code}}}))
	}
	scale, code := vector()
	for b.Loop() {
		hits, err := col.nearest(b.Context(), slog.New(slog.DiscardHandler),
			Query{Audiences: []uuid.UUID{uuid.Nil}, Size: 200}, scale, code)
		if err != nil || len(hits) != 200 {
			b.Fatal("not all are compared")
		}
	}
}
