package quantized

import "testing"

// TestPortable runs the tests again as on a processor that the kernel does not support.
func TestPortable(t *testing.T) {
	if !fast {
		t.Skip("the kernel does not support this processor")
	}
	fast = false
	defer func() { fast = true }()
	t.Run("Multiply", TestMultiply)
	t.Run("Extremes", TestMultiply_Extremes)
	t.Run("Dot", TestDot)
}
