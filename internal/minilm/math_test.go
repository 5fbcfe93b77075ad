package minilm

import (
	"math"
	"math/rand/v2"
	"testing"
)

// numbers returns n numbers from -1 to 1, the same for the same seed.
func numbers(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = 2*r.Float32() - 1
	}
	return x
}

func TestLayerNorm_SameAsPlainLoops(t *testing.T) {
	const width = 96
	n := layerNorm{scale: numbers(width, 1), bias: numbers(width, 2)}
	x := append(numbers(2*width, 3), make([]float32, width)...) // the last row has no variance
	before := append([]float32(nil), x...)
	n.apply(x, width)
	for r := range 3 {
		row, mean, variance := before[r*width:(r+1)*width], 0.0, 0.0
		for _, v := range row {
			mean += float64(v) / width
		}
		for _, v := range row {
			variance += (float64(v) - mean) * (float64(v) - mean) / width
		}
		for i, v := range row {
			want := (float64(v)-mean)/math.Sqrt(variance+normEps)*float64(n.scale[i]) + float64(n.bias[i])
			expectNear(t, "layer norm", x[r*width+i], want, 1e-5)
		}
	}
}

func TestSoftmax_SameAsPlainLoops(t *testing.T) {
	// Wide ranges cover the arguments for which the exponential of the library fails.
	for _, span := range []float32{0, 1, 30, 100, 1e4, 1e30} {
		for n := 1; n <= 70; n++ {
			scores := numbers(n, uint64(n))
			sum, top := 0.0, math.Inf(-1)
			for i := range scores {
				scores[i] *= span
				top = max(top, float64(scores[i]))
			}
			wants := make([]float64, n)
			for i, v := range scores {
				wants[i] = math.Exp(float64(v) - top)
				sum += wants[i]
			}
			softmax(scores)
			for i, v := range scores {
				expectNear(t, "softmax", v, wants[i]/sum, 1e-6)
			}
		}
	}
}

func TestGELU_CloseToErf(t *testing.T) {
	c := newNormalCDF()
	var x []float32
	for v := float32(-8); v <= 8; v += 1.0 / 1999 {
		x = append(x, v)
	}
	x = append(x, 0, cdfLimit, -cdfLimit, math.Nextafter32(cdfLimit, 0), math.Nextafter32(-cdfLimit, 0),
		math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)))
	before := append([]float32(nil), x...)
	c.gelu(x)
	for i, v := range before {
		want := float64(v) / 2 * (1 + math.Erf(float64(v)/math.Sqrt2))
		if math.IsInf(want, 0) && math.IsInf(float64(x[i]), 1) {
			continue
		}
		expectNear(t, "gelu", x[i], want, 1e-5)
	}
}

func TestPool_UnitLength(t *testing.T) {
	dst := numbers(3, 1)
	pool(dst, []float32{3, 0, 1, 3, 8, -1})
	for i, want := range []float64{0.6, 0.8, 0} {
		expectNear(t, "pool", dst[i], want, 1e-6)
	}
	pool(dst, make([]float32, 6))
	for _, v := range dst {
		expectNear(t, "pool of zeros", v, 0, 0)
	}
}

func expectNear(t *testing.T, what string, got float32, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(float64(got)-want) <= tolerance) {
		t.Fatalf("%s: got %g, want %g", what, got, want)
	}
}
