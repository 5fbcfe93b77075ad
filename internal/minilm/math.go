package minilm

import (
	"context"
	"log/slog"
	"math"

	"github.com/viterin/vek/vek32"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/internal/panics"
)

// blockFloats is how many weights are multiplied with all tokens before the next ones are read: a
// block stays in the first-level cache. It must be less than 100,000: from that number on, the
// product of the library starts goroutines.
const blockFloats = 8 << 10

// apply writes the outputs for each row of x to dst, [tokens][out].
func (d *dense) apply(dst, x []float32, tokens int, s split) error {
	return s.run(d.out, func(from, to int) { d.applySome(dst, x, tokens, from, to) })
}

// applySome is apply for some outputs.
func (d *dense) applySome(dst, x []float32, tokens, from, to int) {
	block := max(1, blockFloats/d.in)
	for o := from; o < to; o += block {
		end := min(o+block, to)
		weights, bias := d.weights[o*d.in:end*d.in], d.bias[o:end]
		for t := range tokens {
			row := dst[t*d.out+o : t*d.out+end]
			vek32.MatMul_Into(row, weights, x[t*d.in:(t+1)*d.in], d.in)
			vek32.Add_Inplace(row, bias)
		}
	}
}

// applyTransposed writes the outputs to dst, [out][stride] with stride at least tokens. The numbers
// after the tokens are 0.
func (d *dense) applyTransposed(dst, x []float32, tokens, stride int, s split) error {
	return s.run(d.out, func(from, to int) { d.applySomeTransposed(dst, x, tokens, stride, from, to) })
}

// applySomeTransposed is applyTransposed for some outputs.
func (d *dense) applySomeTransposed(dst, x []float32, tokens, stride, from, to int) {
	block := max(1, blockFloats/d.in)
	for t := 0; t < tokens; t += block {
		end := min(t+block, tokens)
		for o := from; o < to; o++ {
			row := dst[o*stride+t : o*stride+end]
			vek32.MatMul_Into(row, x[t*d.in:end*d.in], d.weights[o*d.in:(o+1)*d.in], d.in)
			vek32.AddNumber_Inplace(row, d.bias[o])
		}
	}
	for o := from; o < to; o++ {
		clear(dst[o*stride+tokens : (o+1)*stride])
	}
}

// split is on how many goroutines a product is computed.
type split int

// run calls work with parts of 0 to n. Its only error is a panic of another goroutine.
func (s split) run(n int, work func(from, to int)) error {
	if s <= 1 {
		work(0, n)
		return nil
	}
	var group errgroup.Group
	for part := range int(s) {
		group.Go(func() error {
			return panics.Call(context.Background(), slog.New(slog.DiscardHandler), "product panicked", func() error {
				work(n*part/int(s), n*(part+1)/int(s))
				return nil
			})
		})
	}
	return group.Wait()
}

// apply normalizes each row of x to mean 0 and variance 1, then scales and shifts it.
func (n layerNorm) apply(x []float32, width int) {
	for ; len(x) > 0; x = x[width:] {
		row := x[:width]
		vek32.SubNumber_Inplace(row, vek32.Sum(row)/float32(width))
		variance := float64(vek32.Dot(row, row)) / float64(width)
		vek32.MulNumber_Inplace(row, float32(1/math.Sqrt(variance+normEps)))
		vek32.Mul_Inplace(row, n.scale)
		vek32.Add_Inplace(row, n.bias)
	}
}

// minExponent bounds the arguments of the exponential: that of the library returns NaN for some
// numbers below -87, whose exponential is less than the normal numbers of float32.
const minExponent = -80

// softmax replaces scores by their softmax. There is at least one.
func softmax(scores []float32) {
	vek32.SubNumber_Inplace(scores, vek32.Max(scores))
	vek32.MaximumNumber_Inplace(scores, minExponent)
	vek32.Exp_Inplace(scores)
	vek32.MulNumber_Inplace(scores, 1/vek32.Sum(scores))
}

// cdfLimit is where the normal distribution is 1 in float32, and cdfStep the inverse distance of the
// entries of its table.
const (
	cdfLimit = 6
	cdfStep  = 128
)

// normalCDF is a table of the standard normal distribution function from -cdfLimit to cdfLimit.
type normalCDF [2*cdfLimit*cdfStep + 2]float32

func newNormalCDF() *normalCDF {
	var c normalCDF
	for i := range c {
		c[i] = float32(math.Erfc(-(float64(i)/cdfStep-cdfLimit)/math.Sqrt2) / 2)
	}
	return &c
}

// gelu replaces each number by itself times the normal distribution function of it, which is GELU
// with erf. It interpolates: the error is less than 1e-5.
func (c *normalCDF) gelu(x []float32) {
	for i, v := range x {
		switch {
		case v >= cdfLimit:
		case v > -cdfLimit:
			at := (v + cdfLimit) * cdfStep
			k := int(at)
			low := c[k]
			x[i] = v * (low + (c[k+1]-low)*(at-float32(k)))
		default:
			x[i] = 0
		}
	}
}
