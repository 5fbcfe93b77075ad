package runtest

import "testing"

func TestFreeAddress_NeverTwice(t *testing.T) {
	given := map[string]bool{}
	for range 300 { // of 17,000: some would be equal by chance
		addr := FreeAddress(t)
		if given[addr] {
			t.Fatalf("%s is given twice", addr)
		}
		given[addr] = true
	}
}
