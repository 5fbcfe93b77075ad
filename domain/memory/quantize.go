package memory

import "math"

// Quantize reduces the direction of a vector to a byte for each dimension: scale times the signed
// bytes of code has a length of about 1. ok is false if the vector has no direction.
func Quantize(vector []float32) (scale float32, code []byte, ok bool) {
	var square, most float64
	for _, x := range vector {
		square += float64(x) * float64(x)
		most = max(most, math.Abs(float64(x)))
	}
	if !(square > 0) || math.IsInf(square, 0) {
		return 0, nil, false
	}
	const steps = 127
	code = make([]byte, len(vector))
	for i, x := range vector {
		code[i] = byte(int8(math.Round(float64(x) / most * steps)))
	}
	return float32(most / steps / math.Sqrt(square)), code, true
}
