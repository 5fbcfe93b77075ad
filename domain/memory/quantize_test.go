package memory_test

import (
	"math"
	"testing"

	"github.com/annals-project/annals/domain/memory"
)

func TestQuantize_KeepsTheDirection(t *testing.T) {
	vector := []float32{3, -4, 0.5, 0, 1e-3}
	scale, code, ok := memory.Quantize(vector)
	if !ok || len(code) != len(vector) {
		t.Fatalf("%v, %v", code, ok)
	}
	var dot, square, length float64
	for i, x := range vector {
		got := float64(scale) * float64(int8(code[i]))
		dot, square, length = dot+got*float64(x), square+got*got, length+float64(x)*float64(x)
	}
	if cos := dot / math.Sqrt(square*length); cos < 0.9999 || math.Abs(square-1) > 0.01 {
		t.Errorf("cosine %f, length %f", cos, square)
	}
}

func TestQuantize_NoDirection(t *testing.T) {
	for _, vector := range [][]float32{nil, {0, 0}, {float32(math.NaN())}, {float32(math.Inf(1)), 1}} {
		if _, code, ok := memory.Quantize(vector); ok {
			t.Errorf("%v is %v", vector, code)
		}
	}
}
