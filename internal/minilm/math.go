package minilm

import (
	"math"

	"github.com/viterin/vek/vek32"
)

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
