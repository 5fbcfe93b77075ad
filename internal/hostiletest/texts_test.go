package hostiletest

import (
	"math/rand/v2"
	"testing"
)

func TestText_EqualSeeds(t *testing.T) {
	one, two := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(1, 1))
	seen := map[string]bool{}
	for range 1000 {
		text := Text(one)
		if text != Text(two) {
			t.Fatalf("equal seeds make different texts: %q", text)
		}
		seen[text] = true
	}
	if len(seen) < 500 {
		t.Errorf("a thousand texts are only %d different ones", len(seen))
	}
}
