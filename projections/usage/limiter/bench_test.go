package limiter_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/projections/usage/limiter"
)

// BenchmarkReserve is one reservation and its release, with 500 others open and 32 callers of one
// organization at once.
func BenchmarkReserve(b *testing.B) {
	l := newLimiterFixture(b, metering.Caps{IngestionCap: limit(1 << 40)})
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

// BenchmarkRecallCounted measures the cost of counting a recall: for one caller, and for many at
// once.
func BenchmarkRecallCounted(b *testing.B) {
	db := pgtest.Database(b)
	projectiontest.Make(b, db, datapoints.New(nil))
	projectiontest.Make(b, db, usage.New())
	log := slog.New(slog.DiscardHandler)
	r := limiter.NewRecalls(limiter.New(db, metering.DefaultPlanTerms(), nil, log), log)
	p := auth.Principal{OrganizationID: uuid.New(), Project: auth.Project{ID: uuid.New(), Namespace: uuid.New()}}
	answer := func(n int) {
		if err := r.Charge(b.Context(), p, fmt.Sprint("identity ", n%100), noon, func() error { return nil }); err != nil {
			b.Error(err)
		}
	}
	b.Run("one", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			answer(n)
		}
	})
	b.Run("many", func(b *testing.B) {
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for n := 0; pb.Next(); n++ {
				answer(n)
			}
		})
	})
}
