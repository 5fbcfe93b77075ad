package usage_test

import (
	"testing"

	"github.com/annals-project/annals/domain/metering"
)

// BenchmarkReserve is one reservation and its release, with 500 others open and 32 callers of one organization at once.
func BenchmarkReserve(b *testing.B) {
	l := newLedger(b, metering.Limits{IngestionCap: limit(1 << 40)})
	for range 500 {
		l.reserve(l.of(1))
	}
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := l.of(1)
			if err := l.Reserve(b.Context(), r, hold); err != nil {
				b.Error(err)
				return
			}
			if err := l.Release(b.Context(), r.SendID, r.Try); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
