package lexicon

import "testing"

// BenchmarkRead measures what the first call of Base costs.
func BenchmarkRead(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if len(readBases()) == 0 {
			b.Fatal("no irregular forms")
		}
	}
}
