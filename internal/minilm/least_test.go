package minilm

import "testing"

// The least cosine grows with the number of vectors, up to a bound.
func TestLeastCosine(t *testing.T) {
	for n, want := range map[int]float64{-1: 0.17, 0: 0.17, 1: 0.17, 10: 0.225, 1000: 0.334, 1_000_000: 0.345} {
		if got := LeastCosine(n); got < want-0.001 || got > want+0.001 {
			t.Errorf("%d vectors: %v, want %v", n, got, want)
		}
	}
}
