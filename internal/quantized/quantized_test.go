package quantized

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// randomMatrix returns a matrix of random codes, with the extreme ones among them.
func randomMatrix(r *rand.Rand, in, out int) *Matrix {
	m := &Matrix{In: in, Out: out, Codes: make([]int8, in*out)}
	for i := range m.Codes {
		m.Codes[i] = int8(r.IntN(256) - 128)
	}
	for range out {
		m.Scales, m.Biases = append(m.Scales, r.Float32()), append(m.Biases, 2*r.Float32()-1)
	}
	return m
}

func TestMultiply(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, size := range []struct{ in, out, rows int }{
		{1, 1, 1},
		{15, 4, 2},
		{16, 1, 1},
		{16, 4, 1},
		{16, 5, 3},
		{17, 9, 4},
		{48, 7, 3},
		{384, 51, 33},
		{1536, 9, 21},
		{384, 8, 256},
		{MaxIn, 4, 3},
		{MaxIn - 1, 2, 2},
	} {
		t.Run(fmt.Sprintf("%d to %d of %d", size.in, size.out, size.rows), func(t *testing.T) {
			m := randomMatrix(r, size.in, size.out)
			x := make([]float32, size.in*size.rows)
			for i := range x {
				x[i] = 2*r.Float32() - 1
			}
			clear(x[:size.in])
			var rows Rows
			rows.Round(x, size.in)
			dst := make([]float32, size.rows*size.out)
			m.Multiply(dst, rows)
			expectProducts(t, m, x, dst)
		})
	}
}

// expectProducts compares with floats, within what rounding of the activations may change.
func expectProducts(t *testing.T, m *Matrix, x, dst []float32) {
	t.Helper()
	step := 1 / float64(min(math.MaxInt16, math.MaxInt32/(128*m.In)))
	for o := range m.Out {
		for r := range len(x) / m.In {
			want := 0.0
			for i, v := range x[r*m.In : (r+1)*m.In] {
				want += float64(v) * float64(m.Codes[o*m.In+i])
			}
			scale := float64(m.Scales[o])
			want = want*scale + float64(m.Biases[o])
			tolerance := scale*step*64*math.Sqrt(float64(m.In))*4 + 1e-5*math.Abs(want) + 1e-6
			if got := float64(dst[r*m.Out+o]); !(math.Abs(got-want) <= tolerance) {
				t.Fatalf("output %d of row %d is %g, want %g", o, r, got, want)
			}
		}
	}
}

// TestMultiply_Extremes holds that sums do not overflow: all activations are the greatest, and all weights the least.
func TestMultiply_Extremes(t *testing.T) {
	for _, in := range []int{16, 384, 512, 1536, 4096, MaxIn} {
		m := &Matrix{In: in, Out: 4, Codes: make([]int8, 4*in), Scales: []float32{1, 1, 1, 1}, Biases: make([]float32, 4)}
		for i := range m.Codes {
			m.Codes[i] = math.MinInt8
		}
		x := make([]float32, 2*in)
		for i := range in {
			x[i], x[in+i] = 3, -3
		}
		var rows Rows
		rows.Round(x, in)
		dst := make([]float32, 8)
		m.Multiply(dst, rows)
		for i, got := range dst {
			want := -3 * 128 * float64(in)
			if i >= 4 {
				want = -want
			}
			if math.Abs(float64(got)-want) > 1e-3*math.Abs(want) {
				t.Errorf("%d numbers: output %d is %g, want %g", in, i, got, want)
			}
		}
	}
}

// The kernel checks no bounds, so Multiply must.
func TestMultiply_SizesThatDoNotMatch(t *testing.T) {
	const in, out = 16, 4
	for name, change := range map[string]func(m *Matrix, rows *Rows, dst *[]float32){
		"short output":     func(_ *Matrix, _ *Rows, dst *[]float32) { *dst = (*dst)[1:] },
		"few weights":      func(m *Matrix, _ *Rows, _ *[]float32) { m.Codes = m.Codes[1:] },
		"few scales":       func(m *Matrix, _ *Rows, _ *[]float32) { m.Scales = m.Scales[1:] },
		"few biases":       func(m *Matrix, _ *Rows, _ *[]float32) { m.Biases = m.Biases[1:] },
		"rows of another":  func(_ *Matrix, rows *Rows, _ *[]float32) { rows.Round(make([]float32, 2*in), 2*in) },
		"more rows":        func(_ *Matrix, rows *Rows, _ *[]float32) { rows.Round(make([]float32, 3*in), in) },
		"more inputs":      func(m *Matrix, _ *Rows, _ *[]float32) { m.In *= 2 },
		"fewer outputs":    func(m *Matrix, _ *Rows, _ *[]float32) { m.Out-- },
		"nothing of a row": func(_ *Matrix, rows *Rows, _ *[]float32) { rows.codes = nil },
	} {
		t.Run(name, func(t *testing.T) {
			m, dst := randomMatrix(rand.New(rand.NewPCG(1, 1)), in, out), make([]float32, 2*out)
			var rows Rows
			rows.Round(make([]float32, 2*in), in)
			change(m, &rows, &dst)
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			m.Multiply(dst, rows)
		})
	}
}

func TestRound(t *testing.T) {
	for _, width := range []int{1, 16, 384, 1536, MaxIn} {
		x := make([]float32, 3*width)
		r := rand.New(rand.NewPCG(uint64(width), 1))
		for i := range width {
			x[i], x[width+i] = (2*r.Float32()-1)*1e6, (2*r.Float32()-1)*1e-6
		}
		var rows Rows
		rows.Round(x, width)
		for i, v := range x {
			step := rows.steps[i/width]
			if got := float32(rows.codes[i]) * step; math.Abs(float64(got-v)) > 0.51*float64(step) {
				t.Fatalf("width %d: %g is rounded to %g with steps of %g", width, v, got, step)
			}
		}
	}
}

func TestDot(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for n := range 200 {
		a, b := make([]int16, n), make([]byte, n)
		want := int32(0)
		for i := range a {
			a[i], b[i] = int16(int8(r.Uint32())), byte(r.Uint32())
			want += int32(a[i]) * int32(int8(b[i]))
		}
		if got := Dot(a, b); got != want {
			t.Errorf("%d numbers: got %d, want %d", n, got, want)
		}
	}
}

func BenchmarkMultiply(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, size := range []struct{ in, out, rows int }{
		{384, 1536, 14}, {1536, 384, 14}, {384, 1536, 128}, {1536, 384, 128},
	} {
		b.Run(fmt.Sprintf("%dx%dx%d", size.in, size.out, size.rows), func(b *testing.B) {
			m := randomMatrix(r, size.in, size.out)
			var rows Rows
			rows.Round(make([]float32, size.in*size.rows), size.in)
			dst := make([]float32, size.out*size.rows)
			for b.Loop() {
				m.Multiply(dst, rows)
			}
			products := float64(size.in) * float64(size.out) * float64(size.rows)
			b.ReportMetric(products*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gproducts/s")
		})
	}
}
