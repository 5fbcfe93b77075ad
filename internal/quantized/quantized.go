// Package quantized multiplies matrices and vectors whose numbers are stored as one signed byte each.
//
// It computes with integers: a row of activations is rounded to 16 bits, so that one instruction of AVX2 does twice
// as many products as with floats, and weights take a quarter of the memory. Other processors run plain loops.
package quantized

import "math"

// Matrix maps In numbers to Out numbers. It is read-only.
type Matrix struct {
	In, Out int
	// Codes holds the weights, [Out][In]. A weight is its code times the scale of its output.
	Codes []int8
	// Scales and Biases have one number for each output.
	Scales, Biases []float32
}

// The kernel takes lanes numbers at once, and computes a group of outputs for a pair of rows.
const (
	lanes = 16
	group = 4
)

// blockBytes is how much of the activations is multiplied with all weights before the rest is: a block stays in the
// second-level cache.
const blockBytes = 64 << 10

// MaxIn is the longest row of activations: its sums of products fit 32 bits.
const MaxIn = 1 << 16

// Multiply writes the outputs for each row of x to dst, [rows][Out]. It panics if a size does not match.
func (m *Matrix) Multiply(dst []float32, x Rows) {
	if len(m.Codes) != m.In*m.Out || len(m.Scales) != m.Out || len(m.Biases) != m.Out ||
		len(x.codes) != len(x.steps)*m.In || len(dst) != len(x.steps)*m.Out {
		panic("quantized: a size does not match") // the kernel does not check bounds
	}
	block := max(2, blockBytes/(2*m.In))
	for first := 0; first < len(x.steps); first += block {
		m.multiply(dst, x, first, min(first+block, len(x.steps)))
	}
}

// multiply is Multiply for some rows.
func (m *Matrix) multiply(dst []float32, x Rows, first, end int) {
	quick := 0
	if fast && m.In%lanes == 0 {
		quick = m.Out / group * group
	}
	for a := first; a < end && quick > 0; a += 2 {
		b := min(a+1, end-1)
		multiplyPair(
			&dst[a*m.Out], &dst[b*m.Out], &x.codes[a*m.In], &x.codes[b*m.In], &m.Codes[0], &m.Scales[0], &m.Biases[0],
			x.steps[a], x.steps[b], m.In, quick,
		)
	}
	for o := quick; o < m.Out; o++ {
		row := m.Codes[o*m.In : (o+1)*m.In]
		for r := first; r < end; r++ {
			sum := float32(product(x.codes[r*m.In:(r+1)*m.In], row))
			dst[r*m.Out+o] = sum*x.steps[r]*m.Scales[o] + m.Biases[o]
		}
	}
}

// Rows are activations, rounded to 16 bits. The zero value is empty; its memory is reused.
type Rows struct {
	codes []int16
	// steps holds for each row what one of its codes counts.
	steps []float32
}

// Round sets the rows to x, which has width numbers in each row. Width is from 1 to MaxIn.
func (r *Rows) Round(x []float32, width int) {
	r.codes, r.steps = grown(r.codes, len(x)), grown(r.steps, len(x)/width)
	// A sum of width products of a code and of a weight of 8 bits fits 32 bits.
	limit := float32(min(math.MaxInt16, math.MaxInt32/(-math.MinInt8*width)))
	for n := range r.steps {
		r.steps[n] = round(r.codes[n*width:(n+1)*width], x[n*width:(n+1)*width], limit)
	}
}

func grown[T any](s []T, size int) []T {
	if cap(s) < size {
		return make([]T, size)
	}
	return s[:size]
}

// round writes the numbers of x as multiples of a step, and returns the step. The greatest is limit steps.
func round(dst []int16, x []float32, limit float32) (step float32) {
	const signless = 1<<31 - 1
	greatest := uint32(0)
	for _, v := range x {
		greatest = max(greatest, math.Float32bits(v)&signless)
	}
	most := math.Float32frombits(greatest)
	if most < math.SmallestNonzeroFloat32*(1<<40) {
		clear(dst)
		return 0
	}
	const half = 0.5
	inverse, shift := limit/most, limit+1+half
	down := int32(limit) + 1
	for i, v := range x[:len(dst)] {
		dst[i] = int16(int32(v*inverse+shift) - down)
	}
	return most / limit
}

// Dot returns the dot product of two vectors of equal length. A byte is a signed number.
func Dot(a []int16, b []byte) int32 {
	b = b[:len(a)]
	sum, quick := int32(0), 0
	if quick = len(a) / lanes * lanes; fast && quick > 0 {
		sum = dot(&a[0], &b[0], quick)
	} else {
		quick = 0
	}
	for i, v := range a[quick:] {
		sum += int32(v) * int32(int8(b[quick+i]))
	}
	return sum
}

// product is Dot in plain loops.
func product(a []int16, b []int8) int32 {
	var s0, s1, s2, s3 int32
	for len(a) >= 4 && len(b) >= 4 {
		s0 += int32(a[0]) * int32(b[0])
		s1 += int32(a[1]) * int32(b[1])
		s2 += int32(a[2]) * int32(b[2])
		s3 += int32(a[3]) * int32(b[3])
		a, b = a[4:], b[4:]
	}
	for i, v := range b {
		s0 += int32(a[i]) * int32(v)
	}
	return s0 + s1 + s2 + s3
}
