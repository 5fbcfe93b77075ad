//go:build !amd64

package quantized

// fast is false: there is no kernel for this processor.
const fast = false

func multiplyPair(_, _ *float32, _, _ *int16, _ *int8, _, _ *float32, _, _ float32, _, _ int) {
	panic("no kernel for this processor")
}

func dot(*int16, *byte, int) int32 { panic("no kernel for this processor") }
