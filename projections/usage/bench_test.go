package usage_test

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
)

// BenchmarkRecallCounted is what counting adds to a recall: of one caller, and of many at once.
func BenchmarkRecallCounted(b *testing.B) {
	db := pgtest.Database(b)
	projectiontest.Make(b, db, datapoints.Projector{})
	projectiontest.Make(b, db, usage.New())
	log := slog.New(slog.DiscardHandler)
	r := usage.NewRecalls(usage.NewMeters(db, metering.DefaultTariff(), nil, log), log)
	p := auth.Principal{OrganizationID: uuid.New(), Project: auth.Project{ID: uuid.New(), Namespace: uuid.New()}}
	answer := func(n int) {
		if err := r.Recall(b.Context(), p, fmt.Sprint("identity ", n%100), noon, func() error { return nil }); err != nil {
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

// BenchmarkAccount reads the account of an organization whose projects used something in each month of two years.
func BenchmarkAccount(b *testing.B) {
	for _, projects := range []int{3, 20, 1000} {
		b.Run(fmt.Sprint(projects, " projects"), func(b *testing.B) {
			db := pgtest.Database(b)
			projectiontest.Make(b, db, datapoints.Projector{})
			projectiontest.Make(b, db, usage.New())
			organization := uuid.New()
			for _, sql := range []string{
				`insert into usage.projects select gen_random_uuid(), $1::uuid from generate_series(1, $2)`,
				`insert into datapoints.month_usage select p.project_id, to_char(date '2024-12-01' + m * interval '1 month', 'YYYY-MM'), 5, 50
					from usage.projects p, generate_series(0, 23) m where organization_id = $1 and $2 > 0`,
				`insert into usage.charges select project_id, month, $1::uuid, 5, 5, 1 from datapoints.month_usage where $2 > 0`,
			} {
				if _, err := db.Exec(b.Context(), sql, organization, projects); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := db.Exec(b.Context(), `analyze`); err != nil {
				b.Fatal(err)
			}
			q := usage.Queries{DB: db, Tariff: metering.DefaultTariff()}
			for b.Loop() {
				if a, err := q.Account(b.Context(), organization, "2026-11"); err != nil || len(a.Projects) != projects {
					b.Fatal(len(a.Projects), err)
				}
			}
		})
	}
}
