package minilm

import "testing"

// The least cosine grows with the number of vectors, up to a bound.
func TestLeastCosine(t *testing.T) {
	for n, want := range map[int]float64{
		-1: 0.135, 0: 0.135, 1: 0.135, 3: 0.195, 10: 0.261, 1000: 0.363, 1_000_000: 0.385,
	} {
		if got := LeastCosine(n); got < want-0.001 || got > want+0.001 {
			t.Errorf("%d vectors: %v, want %v", n, got, want)
		}
	}
}
