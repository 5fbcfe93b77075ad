package quantized

import "golang.org/x/sys/cpu"

// fast reports whether the processor has what the kernel needs.
var fast = cpu.X86.HasAVX2

// multiplyPair multiplies two rows of activations with outs rows of weights. In is a multiple of lanes, outs one of
// group; none is 0.
//
//go:noescape
func multiplyPair(
	dstA, dstB *float32, a, b *int16, weights *int8, scales, biases *float32, stepA, stepB float32, in, outs int,
)

// dot is the dot product of n numbers, a multiple of lanes that is not 0.
//
//go:noescape
func dot(a *int16, b *byte, n int) int32
