package minilm

import "testing"

// The least cosine grows with the number of vectors, up to a bound.
func TestLeastCosine(t *testing.T) {
	for n, want := range map[int]float64{-1: 0.163, 0: 0.163, 1: 0.163, 10: 0.230, 1000: 0.363, 1_000_000: 0.385} {
		if got := LeastCosine(n); got < want-0.001 || got > want+0.001 {
			t.Errorf("%d vectors: %v, want %v", n, got, want)
		}
	}
}
