package minilm

import "testing"

// The least cosine grows with the number of vectors, and slowly.
func TestLeastCosine(t *testing.T) {
	for n, want := range map[int]float64{-1: 0.27, 0: 0.27, 1: 0.27, 10: 0.293, 1000: 0.339, 1_000_000: 0.408} {
		if got := LeastCosine(n); got < want-0.001 || got > want+0.001 {
			t.Errorf("%d vectors: %v, want %v", n, got, want)
		}
	}
}
