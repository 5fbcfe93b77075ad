package embeddings

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/memory"
)

// A data point below the least cosine is no hit. It counts in the windows of others, and is found by id.
func TestSearch_Least(t *testing.T) {
	list := []point{
		{id: 1}, {id: 2, degrees: 40, minutes: 10}, {id: 3, degrees: 70, minutes: 20}, {id: 4, degrees: 90, minutes: 30},
	}
	scale, code, _ := memory.Quantize(direction(0))
	for name, c := range map[string]struct {
		least float64
		want  []byte
	}{
		"no limit": {0, []byte{1, 2, 3, 4}}, "some": {0.5, []byte{1, 2}}, "all": {0.1, []byte{1, 2, 3}},
		"one": {0.9, []byte{1}}, "none": {1.1, nil},
	} {
		s := newSearch(columnOf(t, list...), Query{Audiences: []uuid.UUID{uuid.Nil}, Size: 10}, scale, code)
		var asked int
		s.leastOf = func(vectors int) float64 { asked = vectors; return c.least }
		hits, err := s.run(t.Context(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for _, h := range hits {
			got = append(got, h.DataPoint[15])
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) || asked != len(list) {
			t.Errorf("%s: %v of %d, want %v", name, got, asked, c.want)
		}
		byID := s.of([]uuid.UUID{{15: 1}, {15: 2}, {15: 3}, {15: 4}})
		if len(byID) != len(list) {
			t.Fatalf("%s: %d by id", name, len(byID))
		}
		for i, h := range byID {
			if want := math.Cos(list[i].degrees * math.Pi / 180); !near(h.Cosine, want) {
				t.Errorf("%s: cosine %v of %d, want %v", name, h.Cosine, h.DataPoint[15], want)
			}
		}
		// The window of the second has the third in it, whatever the least cosine is.
		want := (math.Cos(0) + math.Cos(40*math.Pi/180) + math.Cos(70*math.Pi/180)) / 3
		if h := byID[1]; !near(h.Window*fewDeviation, want) {
			t.Errorf("%s: window %v, want %v", name, h.Window*fewDeviation, want)
		}
	}
}

// In a large column too, every hit has an exact cosine of at least the least, and few of those that have it are lost.
func TestSearch_LeastInLargeColumn(t *testing.T) {
	const points, dims, size, least = 2 * maxExact, 384, 200, 0.3
	random := rand.New(rand.NewPCG(5, 6))
	topics := make([][]float32, 80)
	for i := range topics {
		topics[i] = randomVector(random, dims, nil)
	}
	col := new(column)
	var changes []change
	var ids []uuid.UUID
	for n := range points {
		scale, code, _ := memory.Quantize(randomVector(random, dims, topics[random.IntN(len(topics))]))
		id := uuid.UUID{14: byte(n >> 8), 15: byte(n)}
		ids = append(ids, id)
		changes = append(changes, change{
			entry: entry{id: id, revision: 1, at: int64(n)}, dims: dims,
			packed: pack(&memory.Embedded{Dims: dims, Vectors: []memory.Vector{{Scale: scale, Code: code}}}),
		})
	}
	col.apply(changes, nil)
	for name, towards := range map[string][]float32{"a topic": topics[7], "nothing": randomVector(random, dims, nil)} {
		scale, code, _ := memory.Quantize(towards)
		s := newSearch(col, Query{Audiences: []uuid.UUID{uuid.Nil}, Size: size}, scale, code)
		s.leastOf = func(int) float64 { return least }
		hits, err := s.run(t.Context(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		above := make(map[uuid.UUID]float64)
		for _, h := range s.of(ids) {
			if h.Cosine >= least {
				above[h.DataPoint] = h.Cosine
			}
		}
		for _, h := range hits {
			if cosine, is := above[h.DataPoint]; !is || cosine != h.Cosine {
				t.Errorf("%s: hit with cosine %v, by id %v", name, h.Cosine, cosine)
			}
		}
		want := min(size, len(above))
		if len(hits) < want*9/10 || name == "a topic" && want < 50 || name == "nothing" && want > 0 {
			t.Errorf("%s: %d hits of %d above the least cosine", name, len(hits), len(above))
		}
	}
}
